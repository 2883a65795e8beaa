"""Backups and held removals as rows, once on SQLite and once on PostgreSQL."""

import pytest

from csi.store import backups, db, held_removals, watches
from csi.store.backups import Backup
from csi.store.watches import WantedWatch

NOW = 1_771_761_600.0

pytestmark = pytest.mark.usefixtures("store")


def wanted(*refs):
    return [WantedWatch("reddit", ref, f"r/{ref}", None, (), "standard", 60.0, "all") for ref in refs]


def test_the_record_of_backups_is_the_last_good_one_and_what_failed_after_it():
    assert backups.record() == backups.BackupRecord()
    backups.note_expected(NOW)
    backups.note(Backup(NOW + 1, "/b/1.db", 2.5, 5_000_000_000, None))
    backups.note(Backup(NOW + 2, "/b/2.db", 0.1, None, "full"))
    backups.note(Backup(NOW + 3, "/b/3.db", 0.1, None, "still full"))
    found = backups.record()
    assert (found.known_since, found.failing_since) == (NOW, NOW + 2)
    assert (found.last_good.bytes, found.last_failed.error) == (5_000_000_000, "still full")
    assert backups.note_interrupted("killed", NOW + 4) is False
    assert backups.note_interrupted("killed", NOW + 4 + backups.SAME_FAILURE_SECONDS) is True


def test_held_watches_stay_active_until_they_are_accepted_or_wanted_again():
    watches.sync(wanted("a", "b", "c"), NOW)
    watches.sync(wanted("a"), NOW + 1, held={("reddit", "b"), ("reddit", "c")})
    watches.sync(wanted("a", "b"), NOW + 2, held={("reddit", "c")})
    found = held_removals.current()
    assert ([one.ref for one in found.watches], found.configured, found.since) == (["c"], 3, NOW + 1)
    assert len(watches.active()) == 3
    assert held_removals.accept(found.watches, NOW + 3) == 1
    assert held_removals.accept(found.watches, NOW + 3) == 0
    assert [one.ref for one in held_removals.removed_since("reddit", NOW + 3)] == ["c"]
    watches.sync(wanted("a", "b", "c"), NOW + 4)
    assert (len(watches.active()), held_removals.removed_since("reddit", NOW)) == (3, [])


def test_the_settings_of_a_source_are_known_while_it_has_held_watches():
    with db.writing():
        held_removals.remember_settings({"reddit": "{}"})
        held_removals.remember_settings({"reddit": '{"a": 1}'})
    assert held_removals.settings_of_held_sources() == {}
    watches.sync(wanted("a"), NOW)
    watches.sync([], NOW, held={("reddit", "a")})
    assert held_removals.settings_of_held_sources() == {"reddit": '{"a": 1}'}
