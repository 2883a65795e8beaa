"""Feeds as YouTube writes them. Every text is inserted as XML, so a test can insert anything."""

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<feed xmlns:yt="http://www.youtube.com/xml/schemas/2015" xmlns:media="http://search.yahoo.com/mrss/"'
    ' xmlns="http://www.w3.org/2005/Atom">\n'
)
CHANNEL = (
    '<link rel="self" href="http://www.youtube.com/feeds/videos.xml?channel_id=UC1"/><id>yt:channel:1</id>'
    "<yt:channelId>1</yt:channelId><title>A channel</title>"
    '<link rel="alternate" href="https://www.youtube.com/channel/UC1"/>'
    "<author><name>A channel</name><uri>https://www.youtube.com/channel/UC1</uri></author>"
    "<published>2013-05-26T14:24:03+00:00</published>"
)


def entry(title: str = "A title", description: str = "About it", **parts: str) -> str:
    """One entry as YouTube writes it; the texts are inserted as XML."""
    fields = {
        "id": "yt:video:v1",
        "video": "v1",
        "channel": "UC1",
        "name": "A channel",
        "link": '<link rel="alternate" href="https://www.youtube.com/watch?v=v1"/>',
        "published": "2026-02-22T11:55:00+00:00",
        "updated": "2026-02-23T11:55:00+00:00",
        "thumbnail": '<media:thumbnail url="https://i1.ytimg.com/vi/v1/hqdefault.jpg" width="480" height="360"/>',
        "rating": '<media:starRating count="7" average="5.00" min="1" max="5"/>',
        "statistics": '<media:statistics views="42"/>',
        "extra": "",
        "attributes": "",
    } | parts
    return (
        f"<entry{fields['attributes']}>\n <id>{fields['id']}</id>\n <yt:videoId>{fields['video']}</yt:videoId>"
        f"<yt:channelId>{fields['channel']}</yt:channelId><title>{title}</title>{fields['link']}"
        f"<author><name>{fields['name']}</name><uri>https://www.youtube.com/channel/UC1</uri></author>"
        f"<published>{fields['published']}</published><updated>{fields['updated']}</updated>{fields['extra']}"
        f'<media:group><media:title>{title}</media:title><media:content url="https://www.youtube.com/v/v1?version=3"'
        f' type="application/x-shockwave-flash" width="640" height="390"/>{fields["thumbnail"]}'
        f"<media:description>{description}</media:description>"
        f"<media:community>{fields['rating']}{fields['statistics']}</media:community></media:group></entry>\n"
    )


def feed(*entries: str, head: str = HEAD, channel: str = CHANNEL) -> bytes:
    return (head + channel + "".join(entries) + "</feed>\n").encode()
