"""A database of version 1.0.0 is upgraded: nothing is lost, no value changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peewee import IntegrityError

from csi.dlq import dead_letters
from csi.store import alerts, db, destinations, leases
from tests.fakes.fired_alert import fire_alert

LAST_OF_1_0_0 = "0012_letter_keys"
NOW = 1_770_000_000.0

ROWS: dict[str, list[dict[str, Any]]] = {
    "watches": [
        {
            "source": "youtube_channel_rss",
            "ref": "UC1",
            "tier": "standard",
            "interval_seconds": 300.0,
            "next_poll_at": NOW,
            "wake_at": NOW,
            "created_at": "2026-02-02T00:00:00Z",
        }
    ],
    "events": [
        {
            "event_id": "e1",
            "dedupe_key": "youtube:video:UC1:v1",
            "source": "youtube_channel_rss",
            "event_type": "channel_new_upload",
            "occurred_at": "2026-02-02T00:00:00Z",
            "received_at": "2026-02-02T00:00:00Z",
            "subject_json": "{}",
            "routing_json": "{}",
            "metadata_json": "{}",
            "contract_version": "1.0",
            "watch_id": 1,
            "seq": 1,
            "tier": "standard",
            "first_seen_at": NOW,
        }
    ],
    "dedupe_keys": [{"key": "youtube:video:UC1:v1", "expires_at": "2026-05-02T00:00:00Z", "first_seen_at": NOW}],
    "dead_letter": [
        {"event_id": "e1", "event_json": "{}", "source": "youtube_channel_rss", "cause": "event", "died_at": NOW}
    ],
    "endpoints": [
        {
            "destination": "default",
            "breaker": "open",
            "reason": "http 503",
            "opened_at": NOW - 60,
            "canary": 7,
            "probes": 3,
            "next_probe_at": NOW + 5,
            "paused_until": NOW + 40,
            "last_success_at": NOW - 90,
            "last_failure_at": NOW - 1,
            "last_error": "http 429",
            "form": "utf8",
            "paused_at": NOW - 2,
            "held": "maintenance",
            "held_at": NOW - 30,
            "ramp": 4,
        },
        {"destination": "archive"},
    ],
    "troubles": [
        {"name": "disk_low", "subject": "state", "text": "full", "since": NOW - 9, "next_try_at": NOW},
        {
            "name": "receiver_away",
            "subject": "default",
            "text": "http 503",
            "since": NOW - 900,
            "told_at": NOW - 600,
            "ended_at": NOW - 300,
            "end_told_at": NOW - 200,
        },
    ],
    "duties": [{"name": "planner", "holder": "12-ab", "lease_until": NOW + 4}],
}

RENAMED_TABLES = {"endpoints": "destinations", "troubles": "alerts", "duties": "leadership"}
RENAMED_COLUMNS = {
    "endpoints": {
        "breaker": "circuit",
        "paused_until": "throttled_until",
        "form": "json_form",
        "paused_at": "throttled_at",
        "held": "paused_reason",
        "held_at": "paused_at",
    },
    "troubles": {
        "told_at": "notified_at",
        "ended_at": "resolved_at",
        "end_told_at": "resolved_notified_at",
        "next_try_at": "next_notify_at",
    },
    "duties": {"name": "role"},
}


@pytest.fixture(params=["sqlite", "postgres"])
def old_rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """A database of version 1.0.0, and the rows in it by table."""
    url = str(tmp_path / "csi.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    db.open_database(url)
    with db.connection():
        db.runner().up(LAST_OF_1_0_0)
        for table, rows in ROWS.items():
            for row in rows:
                db.run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({db.marks([*row])})", *row.values())
        yield {table: content(table) for table in ROWS}


def content(table: str) -> list[dict[str, Any]]:
    cursor = db.run(f"SELECT * FROM {table} ORDER BY 1")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def test_every_row_keeps_its_values(old_rows: dict[str, list[dict[str, Any]]]) -> None:
    assert "0014_plain_terms" in db.migrate()
    for table, rows in old_rows.items():
        renamed = RENAMED_COLUMNS.get(table, {})
        expected = [{renamed.get(name, name): value for name, value in row.items()} for row in rows]
        found = content(RENAMED_TABLES.get(table, table))
        # Later migrations add columns.
        assert [{name: row[name] for name in old} for row, old in zip(found, expected, strict=True)] == expected
    assert not {"endpoints", "troubles", "duties"} & set(db.database.get_tables())


def test_the_program_reads_the_upgraded_rows(old_rows: dict[str, list[dict[str, Any]]]) -> None:
    db.migrate()
    row = destinations.get("default")
    assert (row.circuit, row.reason, row.canary, row.json_form, row.ramp) == ("open", "http 503", 7, "utf8", 4)
    assert (row.paused_reason, row.paused_at) == ("maintenance", NOW - 30)
    assert (row.throttled_until, row.throttled_at) == (NOW + 40, NOW - 2)
    assert destinations.get("archive").circuit == "closed"
    assert [(one.name, one.notified_at) for one in alerts.firing()] == [("disk_low", None)]
    assert not leases.hold_leadership("planner", NOW), "the lease of the other worker is still valid"
    assert leases.hold_leadership("planner", NOW + 5)


def test_dead_letters_of_the_cause_endpoint_have_the_cause_destination(
    old_rows: dict[str, list[dict[str, Any]]],
) -> None:
    for event_id, cause in (("src:a", "endpoint"), ("src:b", "event")):
        row = {"event_id": event_id, "event_json": "{}", "source": "src", "cause": cause, "died_at": NOW}
        db.run(f"INSERT INTO dead_letter ({', '.join(row)}) VALUES ({db.marks([*row])})", *row.values())
    db.migrate()
    assert "src:a" in [one.event_id for one in dead_letters.probe_candidates("default", 3)]
    assert db.column("SELECT cause FROM dead_letter WHERE source = 'src' ORDER BY id") == ["destination", "event"]
    with pytest.raises(IntegrityError), db.writing():
        db.run("UPDATE dead_letter SET cause = 'endpoint'")


def test_constraints_and_ids_continue(old_rows: dict[str, list[dict[str, Any]]]) -> None:
    db.migrate()
    with pytest.raises(IntegrityError), db.writing():
        db.run("UPDATE destinations SET circuit = 'ajar'")
    assert not fire_alert("disk_low", "state", "fuller", NOW), "it is firing already"
    assert fire_alert("receiver_away", "default", "http 500", NOW)
    assert [one.id for one in alerts.latest(9)] == [3, 2, 1]
