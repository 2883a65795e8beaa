"""A channel is found on YouTube's page, in any of the places where the page names it."""

import pytest

from csi.adapters.youtube.page_lookup import find_channel
from csi.adapters.youtube.references import parse_reference
from csi.errors import NetError, SourceError
from tests.fakes.stub_net import StubNet, reply

ID = "UCsXVk37bltHxD1rDPwtNM8Q"
OTHER = "UCBa659QWEk1AI4Tg--mrJ2A"
VIDEO = "https://www.youtube.com/watch?v=dQw4w9WgXcQ"


def look_up(text: str, page: str, status: int = 200):
    net = StubNet([reply(page.encode(), status)])
    found = find_channel(net, parse_reference(text))  # type: ignore[arg-type]
    return found and found.id, found and found.title, net.asked[0].path


@pytest.mark.parametrize(
    "page",
    [
        f'<link rel="canonical" href="https://www.youtube.com/channel/{ID}"> "externalId":"{OTHER}"',
        f'"channelId":"{OTHER}" <meta itemprop="identifier" content="{ID}">',
        f'"channelId":"{OTHER}" {{"externalId":"{ID}"}}',
        f'<link rel="alternate" type="application/rss+xml" title="RSS" href="https://x/feeds/videos.xml?channel_id={ID}">',
    ],
)
def test_a_handle(page):
    named = '<meta property="og:title" content="Tom &amp; Jerry">'
    assert look_up("@tom", named + page) == (ID, "Tom & Jerry", "/@tom")


@pytest.mark.parametrize(
    "page",
    [
        f'<meta itemprop="channelId" content="{ID}"><link itemprop="name" content="Tom">',
        f'"ownerChannelName":"Tom" "externalChannelId":"{ID}"',
        f'"channelId":"{OTHER}" "videoDetails":{{"videoId":"x","channelId":"{ID}"}},"ownerChannelName":"Tom"',
    ],
)
def test_a_video(page):
    assert look_up(VIDEO, page) == (ID, "Tom", "/watch")


def test_what_does_not_exist_is_none_and_what_shows_no_channel_an_error():
    assert look_up("@nobody", "", 404)[0] is None
    assert look_up(VIDEO, '{"videoId":"dQw4w9WgXcQ","status":"ERROR"}')[0] is None
    with pytest.raises(SourceError, match="shows no channel"):
        look_up("@tom", "<html>Before you continue to YouTube</html>")
    with pytest.raises(SourceError, match="answered 429"):
        look_up("@tom", "", 429)


def test_no_answer_is_an_error():
    def fail(asked):
        raise NetError("timed out", kind="timeout")

    with pytest.raises(SourceError, match="could not be read: timed out"):
        find_channel(StubNet(fail), parse_reference("@tom"))  # type: ignore[arg-type]
