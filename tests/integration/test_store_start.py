"""Workers that start at the same moment on one database."""

from csi.store import watches
from csi.store.models import Watch

WANTED = watches.WantedWatch("youtube_channel_rss", "UCxxx", None, None, (), "standard", 300.0, "mark_seen")


def test_a_watch_that_another_worker_has_just_made_is_no_error(store, monkeypatch):
    watches.sync([WANTED], now=100.0)
    monkeypatch.setattr(Watch, "get_or_none", lambda **_: None)  # looked before the other one had committed
    watches.sync([WANTED], now=101.0)
    (watch,) = Watch.select()
    assert (watch.ref, watch.state, watch.next_poll_at) == ("UCxxx", "active", 100.0)
