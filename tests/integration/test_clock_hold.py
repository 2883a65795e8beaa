"""A worker whose wall clock jumped: what it holds, what continues, what the operator sees."""

import pytest

from csi.catalog import catalog_retention
from csi.cli.status import lines as status_lines
from csi.pipeline import clock_check, poll
from csi.status.facts import gather
from csi.status.overview import overview
from csi.store import db, heartbeats
from csi.store.models import Watch
from csi.web.health import liveness, readiness
from csi.worker import retention
from tests.rigs.in_process import LedgerPipeline, ledger_pipeline

DAY = 86_400.0
JUMP = 91 * DAY


class Jumped:
    """A pipeline whose wall clock can be set; its steady clock only moves with `wait`."""

    def __init__(self, built: LedgerPipeline) -> None:
        self.rig, self.rt, self.ahead = built, built.rt, 0.0
        self.rt.steady = lambda: built.clock() - self.ahead
        clock_check.begin(self.rt)

    def jump(self, seconds: float) -> None:
        self.ahead += seconds
        self.rig.clock.move(seconds)

    def wait(self, seconds: float) -> None:
        self.rig.wait(seconds, step=min(seconds, 30))


@pytest.fixture
def at(tmp_path):
    with ledger_pipeline(tmp_path, lists=1) as built:
        built.publish(2)
        built.wait(20)
        yield Jumped(built)


@pytest.fixture
def logged(monkeypatch):
    said = []
    for level in ("info", "warning"):
        monkeypatch.setattr(clock_check.log, level, lambda message, **keys: said.append((message, keys)))
    return said


def test_a_poll_that_was_queued_before_the_jump_reads_nothing(at):
    reads = at.rig.shelf.reads
    at.jump(JUMP)
    assert list(poll.poll(at.rt, Watch.get().id)) == [[]]
    assert poll.poll_early(at.rt, Watch.get().id) == []
    assert at.rig.shelf.reads == reads
    at.jump(-JUMP)
    at.wait(20)
    assert at.rig.shelf.reads > reads


def test_delivery_continues_in_a_hold(at):
    at.rig.publish(3)
    at.rig.clock.move(11)
    at.rig.run_without_delivery()
    assert at.rig.states() == {"delivered": 2, "pending": 3}
    at.jump(JUMP)
    at.wait(60)
    assert clock_check.is_held(at.rt)
    assert at.rig.states() == {"delivered": 5}


def test_retention_deletes_nothing_in_a_hold(at):
    retention.prune_hourly(at.rt)
    pruned_to = heartbeats.last_beat(retention.NAME)
    at.jump(JUMP)
    at.wait(5)
    assert retention.prune_hourly(at.rt) == retention.Pruned(complete=False)
    assert catalog_retention.archive_old_rows_hourly(at.rt) == catalog_retention.CatalogRetentionResult(complete=False)
    with pytest.raises(
        clock_check.UntrustedClockError, match=r"nothing is deleted: the system clock jumped by \+91\.0 d"
    ):
        retention.prune(at.rt)
    assert heartbeats.last_beat(retention.NAME) == pruned_to
    assert at.rig.states() == {"delivered": 2}


def test_a_hold_ends_when_the_clock_returns(at, logged):
    at.jump(JUMP)
    at.wait(60)
    at.jump(-JUMP)
    at.wait(60)
    assert [message for message, _ in logged if "polling" in message] == [
        "clock jumped; polling and retention are held",
        "clock is right again; polling and retention resume",
    ]


def test_a_clock_that_stays_is_accepted_after_fifteen_minutes(at, logged):
    at.jump(3600)
    at.wait(14 * 60)
    assert clock_check.is_held(at.rt)
    at.wait(2 * 60)
    assert not clock_check.is_held(at.rt)
    assert [(message, keys) for message, keys in logged if "polling" in message] == [
        ("clock jumped; polling and retention are held", {"seconds": 3600}),
        ("clock jump is accepted; polling and retention resume", {"seconds": 3600}),
    ]


def test_a_restart_keeps_the_hold_and_notices_a_jump_while_no_worker_ran(at, monkeypatch):
    monkeypatch.setattr(clock_check.clock, "boot_id", lambda: "boot")
    at.wait(5)
    at.jump(JUMP)
    clock_check.begin(at.rt)
    assert clock_check.is_held(at.rt)
    at.wait(14 * 60)
    clock_check.begin(at.rt)
    at.wait(2 * 60)
    assert not clock_check.is_held(at.rt), "the hold of the worker before counts"


def test_after_a_boot_there_is_nothing_to_compare_with(at, monkeypatch):
    at.wait(5)
    at.jump(JUMP)
    monkeypatch.setattr(clock_check.clock, "boot_id", lambda: "another boot")
    clock_check.begin(at.rt)
    assert not clock_check.is_held(at.rt)


def test_status_and_health_pages_name_the_hold(at):
    at.jump(JUMP)
    at.wait(5)
    text = clock_check.hold_text(heartbeats.latest("worker"), at.rt.now())
    assert gather(at.rt).clock_held_since == pytest.approx(at.rt.now() - 5, abs=5)
    assert f"clock     {text}" in list(status_lines(overview(at.rt)))
    ready, alive = readiness(gather(at.rt)), liveness(gather(at.rt))
    assert (ready.is_good, ready.body["reasons"]) == (False, [text])
    assert (alive.is_good, alive.body["overdue"]) == (True, {}), "a restart of the worker does not help"
    at.jump(-JUMP)
    at.wait(20)
    assert readiness(gather(at.rt)).is_good


def test_a_watch_that_was_read_in_the_future_was_read_now(at):
    """The adapters leave out what is older than the last read; a last read in the future would leave out everything."""
    Watch.update(last_poll_at=at.rt.now() + JUMP, last_success_at=at.rt.now() + JUMP).execute()
    at.wait(20)
    with db.connection():
        assert Watch.get().last_success_at <= at.rt.now()
