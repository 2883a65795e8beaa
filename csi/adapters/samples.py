"""Invented answers of the built-in sources, for the conformance suite."""

import json
from typing import Any

from csi.adapters.base import SampleAnswer, SourceSamples

API = "https://www.googleapis.com/youtube/v3"
PLAYLIST = "PLsample0000000000000000000000001"
CHANNEL = "UCsample000000000000000A"
VIDEOS = ("samplevid01", "samplevid02", "samplevid03")
FEED = "https://www.example.org/feed.xml"
JSON_TYPE = {"Content-Type": "application/json; charset=UTF-8"}
XML_TYPE = {"Content-Type": "text/xml; charset=UTF-8"}


def youtube_playlist() -> SourceSamples:
    """Two pages of a list, with an item that became private."""
    items = [_playlist_item(video, place) for place, video in enumerate(VIDEOS)]
    private = {"kind": "youtube#playlistItem", "id": "private", "snippet": {"title": "Private video"}}
    lookups = [
        {
            "id": video,
            "snippet": {"liveBroadcastContent": "upcoming" if video == VIDEOS[-1] else "none"},
            "contentDetails": {"duration": "PT21M7S"},
        }
        for video in VIDEOS
    ]
    pages = {
        f"{API}/playlistItems?": _json(items=[*items[:2], private], nextPageToken="EAAaBlBUOkNBVQ", etag="one"),
        f"{API}/playlistItems?part=snippet%2CcontentDetails%2Cstatus&playlistId={PLAYLIST}&maxResults=50&pageToken=": (
            _json(items=items[2:], etag="two")
        ),
        f"{API}/videos?": _json(items=lookups),
    }
    return SourceSamples({"playlists": [{"id": PLAYLIST}]}, pages, {"YOUTUBE_API_KEY": "a-key-of-the-samples"})


def youtube_channel_rss() -> SourceSamples:
    """A feed with a video, a short and an upcoming stream."""
    entries = "".join(_entry(video, place) for place, video in enumerate(VIDEOS))
    feed = f"""<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns:yt="http://www.youtube.com/xml/schemas/2015" xmlns:media="http://search.yahoo.com/mrss/" \
xmlns="http://www.w3.org/2005/Atom">
 <link rel="self" href="http://www.youtube.com/feeds/videos.xml?channel_id={CHANNEL}"/>
 <id>yt:channel:{CHANNEL[2:]}</id><yt:channelId>{CHANNEL[2:]}</yt:channelId><title>A sample channel</title>
 <link rel="alternate" href="https://www.youtube.com/channel/{CHANNEL}"/>
 <author><name>A sample channel</name><uri>https://www.youtube.com/channel/{CHANNEL}</uri></author>
 <published>2015-03-01T10:00:00+00:00</published>{entries}
</feed>
"""
    answer = SampleAnswer(feed.encode(), headers=XML_TYPE)
    return SourceSamples({"watchlist": [{"channel_id": CHANNEL}]}, {"https://www.youtube.com/feeds/videos.xml": answer})


def feed() -> SourceSamples:
    """A podcast with a guid, an item without one, and an item without a date and a title."""
    document = """<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0"><channel><title>A sample podcast</title><link>https://www.example.org/</link>
<item><guid isPermaLink="false">episode-2</guid><title>Second</title><link>https://www.example.org/2</link>
<pubDate>Sat, 21 Feb 2026 12:00:00 GMT</pubDate><description>Text of the second.</description>
<enclosure url="https://www.example.org/2.mp3" type="audio/mpeg" length="1234567"/></item>
<item><title>First</title><link>https://www.example.org/1?utm_source=feed</link>
<pubDate>Fri, 20 Feb 2026 12:00:00 GMT</pubDate></item>
<item><guid>note-1</guid><description>A note without a title and without a date.</description></item>
</channel></rss>
"""
    return SourceSamples({"feeds": [{"url": FEED}]}, {FEED: SampleAnswer(document.encode(), headers=XML_TYPE)})


def _json(**body: Any) -> SampleAnswer:
    return SampleAnswer(json.dumps(body).encode(), headers=JSON_TYPE)


def _playlist_item(video: str, place: int) -> dict[str, Any]:
    return {
        "kind": "youtube#playlistItem",
        "id": f"sample-item-{place}",
        "snippet": {
            "publishedAt": f"2026-02-2{place}T12:00:00Z",
            "channelId": CHANNEL,
            "title": f"Video {place}",
            "description": "What it is about.",
            "thumbnails": {"default": {"url": f"https://i.ytimg.com/vi/{video}/default.jpg"}},
            "channelTitle": "Owner of the list",
            "videoOwnerChannelTitle": "A sample channel",
            "videoOwnerChannelId": CHANNEL,
            "playlistId": PLAYLIST,
            "position": place,
            "resourceId": {"kind": "youtube#video", "videoId": video},
        },
        "contentDetails": {"videoId": video, "videoPublishedAt": f"2026-02-1{place}T12:00:00Z"},
        "status": {"privacyStatus": "public"},
    }


def _entry(video: str, place: int) -> str:
    page = f"https://www.youtube.com/{'shorts/' if place == 1 else 'watch?v='}{video}"
    return f"""
 <entry>
  <id>yt:video:{video}</id><yt:videoId>{video}</yt:videoId><yt:channelId>{CHANNEL}</yt:channelId>
  <title>Video {place}</title><link rel="alternate" href="{page}"/>
  <author><name>A sample channel</name><uri>https://www.youtube.com/channel/{CHANNEL}</uri></author>
  <published>2026-02-2{2 - place}T10:00:00+00:00</published><updated>2026-02-22T11:00:00+00:00</updated>
  <media:group>
   <media:title>Video {place}</media:title>
   <media:content url="https://www.youtube.com/v/{video}?version=3" type="application/x-shockwave-flash" width="640" \
height="390"/>
   <media:thumbnail url="https://i.ytimg.com/vi/{video}/hqdefault.jpg" width="480" height="360"/>
   <media:description>What it is about.</media:description>
   <media:community><media:starRating count="12" average="5.00" min="1" max="5"/>\
<media:statistics views="{0 if place == 2 else 340}"/></media:community>
  </media:group>
 </entry>"""


def reddit() -> SourceSamples:
    entry = (
        '<entry><author><name>/u/writer</name></author><category term="python" label="r/python"/>'
        '<content type="html">&lt;span&gt;&lt;a href=&quot;https://example.org/{0}&quot;&gt;[link]&lt;/a&gt;</content>'
        '<id>t3_{0}</id><link href="https://www.reddit.com/r/python/comments/{0}/post/"/>'
        "<published>2026-02-22T11:5{1}:00+00:00</published><title>Post {0}</title></entry>"
    )
    entries = "".join(entry.format(f"1abc{number}", number) for number in range(3))
    body = f'<feed xmlns="http://www.w3.org/2005/Atom"><id>/r/python/new/.rss</id>{entries}</feed>'
    return SourceSamples(
        {"subreddits": [{"name": "python"}]},
        {"https://www.reddit.com/r/python/new/.rss": SampleAnswer(body.encode())},
    )
