"""Backfill: a channel's whole history, once, over every kind of interruption, within the day's units."""

import pytest

from csi.catalog.handlers import HANDLERS
from csi.jobs.work import work
from csi.store import budget, channels, jobs, stats, videos
from csi.store.db import fetch
from tests.fakes.catalogue import DAY, HOUR, shop


def test_adding_a_channel_fetches_its_whole_history_and_first_statistics(tmp_path, clock):
    with shop(tmp_path, clock) as here:
        channel = here.channel(videos=120)
        job = here.add(channel)
        here.run()
        assert here.job(job.id).status == "completed"
        assert fetch("SELECT COUNT(*), COUNT(DISTINCT id) FROM videos") == [(120, 120)]
        assert fetch("SELECT COUNT(*) FROM video_stats WHERE captured_at = ?", clock()) == [(120,)]
        found = channels.find(channel.id)
        assert (found.title, found.video_count, found.uploads_playlist_id) == ("Somebody", 120, "UU" + channel.id[2:])
        assert found.backfilled_at == clock()
        assert len(stats.trend(channel.id, 0)) == 1
        # 1 to look, 1 for the channel, 3 pages with their videos; the rest are the first refreshes.
        assert here.job(job.id).units == 7
        assert here.booked == here.counted
