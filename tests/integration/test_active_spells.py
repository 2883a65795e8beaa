"""How often a watch had something new in the last day, among however many older events."""

import random

import pytest

from csi.store import db, watch_admin
from csi.store.models import database
from tests.rigs.in_process import InProcessPipeline

NOW, HOUR = 1_790_000_000.0, 3600.0
_EVENT = """
    INSERT INTO events (id, event_id, dedupe_key, source, event_type, occurred_at, received_at, subject_json,
        routing_json, metadata_json, delivered, created_at, contract_version, seq, tier, state, first_seen_at, watch_id)
    VALUES (?, ?, ?, ?, 'x', '', '', '{}', '{}', '{}', TRUE, '', '1.0', ?, 'standard', 'delivered', ?, ?)
"""


@pytest.fixture
def store(tmp_path, clock):
    InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/nobody", sources={})
    with db.connection():
        database.execute_sql("PRAGMA foreign_keys = 0")  # events of watches that nobody made
        yield


def put(number: int, seen_at: float, watch_id: int | None = 1, source: str = "youtube_playlist") -> None:
    database.execute_sql(_EVENT, (number, f"e{number}", f"k{number}", source, number, seen_at, watch_id))


def spells(since: float) -> dict[int, int]:
    return dict(watch_admin.active_spells(["youtube_playlist"], since, HOUR))


def test_no_events_are_no_spells(store):
    assert spells(NOW) == {}


def test_spells_are_counted_by_watch_from_the_moment_on(store):
    put(3, NOW - 30 * HOUR)
    put(7, NOW - 5 * HOUR)
    put(8, NOW - 5 * HOUR + 1)
    put(20, NOW - HOUR, watch_id=2)
    put(21, NOW - HOUR, source="another")
    put(22, NOW - HOUR, watch_id=None)
    put(23, NOW)
    assert spells(NOW - 24 * HOUR) == {1: 2, 2: 1}
    assert spells(NOW + 1) == {}
    assert spells(0.0) == {1: 3, 2: 1}


def test_only_events_of_that_time_are_read_however_ids_lie(store):
    dice, number = random.Random(7), 0
    times = sorted(dice.uniform(NOW - 1000 * HOUR, NOW) for _ in range(300))
    for at in times:
        number += dice.randrange(1, 50)
        put(number, at)
    for since in (NOW - 2000 * HOUR, NOW - 500 * HOUR, NOW - 3 * HOUR, NOW + HOUR):
        assert spells(since).get(1, 0) == len({at // HOUR for at in times if at >= since})
