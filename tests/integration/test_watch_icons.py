"""Icons of watches: only their addresses are stored, from the feed or from the API."""

import pytest

from csi import api_models
from csi.adapters.feed_document import read_feed
from csi.store.models import Watch
from tests.rigs.in_process import polling_pipeline

RSS = "<rss version='2.0'><channel><title>B</title>{}<item><guid>1</guid></item></channel></rss>"
ATOM = "<feed xmlns='http://www.w3.org/2005/Atom'><title>B</title>{}<entry><id>1</id></entry></feed>"
PODCAST = "<rss version='2.0' xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'><channel>{}</channel></rss>"


@pytest.mark.parametrize(
    ("document", "icon"),
    [
        (RSS.format("<image><url>/logo.png</url></image>"), "https://blog.example/logo.png"),
        (ATOM.format("<icon>https://cdn.example/i.png</icon><logo>/l.png</logo>"), "https://cdn.example/i.png"),
        (ATOM.format("<logo>/l.png</logo>"), "https://blog.example/l.png"),
        (PODCAST.format("<itunes:image href='https://cdn.example/p.jpg'/>"), "https://cdn.example/p.jpg"),
        (
            '{"version": "https://jsonfeed.org/version/1.1", "icon": "/i.png", "items": []}',
            "https://blog.example/i.png",
        ),
        (RSS.format(""), None),
        (RSS.format("<image><url>javascript:alert(1)</url></image>"), None),
        ('{"icon": {"a": 1}, "items": []}', None),
    ],
)
def test_a_feed_names_its_icon(document, icon):
    assert read_feed(document.encode(), "", "https://blog.example/feed").icon == icon


def test_icons_of_channels_and_playlists_cost_one_unit_for_all(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=3, playlists=2, videos=2) as s:
        s.pipeline.wait(60, step=10)
        found = {row.ref: row.icon_url for row in Watch.select()}
        assert all(url.startswith("https://") for url in found.values()), found
        assert s.site.requests.count("/youtube/v3/channels") == 1
        shown = api_models.WatchJson.of_rows(s.rt, list(Watch.select()))
        assert {one.ref: one.icon_url for one in shown} == found


def test_an_address_that_a_page_must_not_show_is_not_stored(tmp_path, clock, monkeypatch):
    with polling_pipeline(tmp_path, clock, channels=1, videos=1) as s:
        adapter = s.rt.adapter("youtube_channel_rss")
        monkeypatch.setattr(adapter, "find_icons", lambda refs: dict.fromkeys(refs, "https://a/\"onerror='x'"))
        s.pipeline.wait(60, step=10)
        assert [row.icon_url for row in Watch.select()] == [None]
        assert Watch.get().icon_due_at > clock() + 86_400, "it is not asked for again and again"
