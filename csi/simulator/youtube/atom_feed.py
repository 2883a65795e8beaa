"""The Atom feed of a channel or a playlist, with the elements and the order that YouTube uses."""

import re
from datetime import UTC, datetime
from html import escape

from csi.simulator.youtube.world import PlaylistSlice, SimulatedChannel, SimulatedVideo

FEED_SIZE = 15
SITE = "https://www.youtube.com"

_OPENING = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<feed xmlns:yt="http://www.youtube.com/xml/schemas/2015"'
    ' xmlns:media="http://search.yahoo.com/mrss/" xmlns="http://www.w3.org/2005/Atom">\n'
)
# XML 1.0 cannot represent these characters, not even escaped.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_ENTRY = """ <entry>
  <id>yt:video:{id}</id>
  <yt:videoId>{id}</yt:videoId>
  <yt:channelId>{channel}</yt:channelId>
  <title>{title}</title>
  <link rel="alternate" href="{link}"/>
  <author>
   <name>{name}</name>
   <uri>{site}/channel/{channel}</uri>
  </author>
  <published>{published}</published>
  <updated>{updated}</updated>
  <media:group>
   <media:title>{title}</media:title>
   <media:content url="{site}/v/{id}?version=3" type="application/x-shockwave-flash" width="640" height="390"/>
   <media:thumbnail url="https://i{host}.ytimg.com/vi/{id}/hqdefault.jpg" width="480" height="360"/>
   <media:description>{description}</media:description>
   <media:community>
    <media:starRating count="{likes}" average="5.00" min="1" max="5"/>
    <media:statistics views="{views}"/>
   </media:community>
  </media:group>
 </entry>
"""


def channel_feed(channel: SimulatedChannel, videos: tuple[SimulatedVideo, ...], now: float) -> bytes:
    """The feed of `?channel_id=`. The ids of the feed itself lack the prefix `UC`; those of its entries have it."""
    short, address = channel.id.removeprefix("UC"), f"{SITE}/channel/{channel.id}"
    head = (
        f' <link rel="self" href="http://www.youtube.com/feeds/videos.xml?channel_id={channel.id}"/>\n'
        f" <id>yt:channel:{short}</id>\n"
        f" <yt:channelId>{short}</yt:channelId>\n"
        f" <title>{text(channel.title)}</title>\n"
        f' <link rel="alternate" href="{address}"/>\n'
    )
    return _document(head, channel, channel.created_at, [_entry(video, channel, now) for video in videos])


def playlist_feed(
    listing: PlaylistSlice, shown: tuple[tuple[SimulatedVideo, SimulatedChannel], ...], now: float
) -> bytes:
    """The feed of `?playlist_id=`: in list order, with the videos' dates; when an item was added is not shown."""
    head = (
        f' <link rel="self" href="http://www.youtube.com/feeds/videos.xml?playlist_id={listing.ref}"/>\n'
        f" <id>yt:playlist:{listing.ref}</id>\n"
        f" <yt:playlistId>{listing.ref}</yt:playlistId>\n"
        f" <yt:channelId>{listing.owner.id}</yt:channelId>\n"
        f" <title>{text(listing.title)}</title>\n"
    )
    return _document(head, listing.owner, listing.created_at, [_entry(video, owner, now) for video, owner in shown])


def text(value: str) -> str:
    """Escaped character data, without the characters that XML cannot represent."""
    return escape(_UNWRITABLE.sub("", value), quote=False)


def stamp(epoch: float) -> str:
    """A time as feeds write it, `2026-08-14T19:14:36+00:00`; the Data API ends in Z."""
    return datetime.fromtimestamp(int(epoch), UTC).isoformat()


def _document(head: str, author: SimulatedChannel, created_at: float, entries: list[str]) -> bytes:
    about = (
        f" <author>\n  <name>{text(author.title)}</name>\n"
        f"  <uri>{SITE}/channel/{author.id}</uri>\n </author>\n"
        f" <published>{stamp(created_at)}</published>\n"
    )
    return "".join((_OPENING, head, about, *entries, "</feed>\n")).encode()


def _entry(video: SimulatedVideo, channel: SimulatedChannel, now: float) -> str:
    views = video.views_at(now)
    path = "shorts/" if video.kind == "short" else "watch?v="
    return _ENTRY.format(
        id=video.id,
        channel=channel.id,
        name=text(channel.title),
        title=text(video.title),
        link=f"{SITE}/{path}{video.id}",
        site=SITE,
        published=stamp(video.published_at),
        updated=stamp(video.updated_at),
        host=1 + video.serial % 4,
        description=text(video.description),
        likes=0 if video.hides_likes else views // 25,
        views=views,
    )
