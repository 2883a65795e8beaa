"""The plan keeps the promise of the tier urgent where the units allow it; new units and keys wake what waits."""

import pytest

from csi.pipeline import quota_schedule
from csi.store import api_units, db
from csi.store.models import Watch
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline


@pytest.fixture
def line(tmp_path, clock):
    with simulated_youtube(playlists=2, now=clock) as yt, ScriptedReceiver() as ua, db.connection():

        def make(count: int, **block):
            own = block.pop("own", {})
            lists = [{"id": ref, "name": "x", **own} for ref in yt.playlists[:count]]
            settings = {"playlists": lists, "api_base_url": yt.api_base_url, **block}
            return InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": settings})

        yield make


@pytest.mark.parametrize(
    ("count", "block", "seconds", "holds"),
    [
        (1, {}, 20, True),
        (1, {"poll_interval_seconds": 30}, 20, True),
        (1, {"own": {"poll_interval_seconds": 30}}, 30, False),
        (1, {"poll_interval_seconds": 60}, 60, False),
        (1, {"priority": "standard"}, 30, None),
        (1, {"quota_limit": 4000}, 30, False),
    ],
)
def test_the_interval_that_is_chosen(line, count, block, seconds, holds):
    built = line(count, **block)
    built.run()
    found = quota_schedule.forecast(built.rt, built.rt.now())
    assert found is not None
    assert [group.seconds for group in found.groups] == [pytest.approx(seconds, abs=1)]
    assert (found.urgent and not found.urgent.startswith("not promised")) == holds
    row = Watch.get()
    assert row.next_poll_at - built.rt.now() <= seconds


def test_a_raised_limit_wakes_what_waits_for_units(line):
    built = line(1, quota_limit=1000)
    built.run()
    api_units.exhaust(1000, built.rt.now())
    later = built.rt.now() + 3000
    Watch.update(error_kind="budget", errors=1, next_poll_at=later, wake_at=later).execute()
    assert quota_schedule.wake_throttled(built.rt) == 0
    raised = line(1, quota_limit=10_000)
    assert quota_schedule.wake_throttled(raised.rt) == 1
    assert Watch.get().next_poll_at == raised.rt.now()
    assert quota_schedule.wake_throttled(raised.rt) == 0


def test_a_key_that_is_set_wakes_what_had_none(line):
    built = line(1)
    later = built.rt.now() + 3000
    built.run()
    Watch.update(error_kind="auth", errors=1, next_poll_at=later, wake_at=later).execute()
    assert quota_schedule.wake_throttled(built.rt) == 1
