"""Backups: when an old, missing or failed one is a problem, and how loud."""

import pytest

from csi.status.facts import SystemFacts
from csi.status.problems import to_notify
from csi.status.verdict import judge
from csi.status.worker import WorkerStatus
from csi.store.backups import Backup, BackupRecord
from csi.store.heartbeats import LastHeartbeat

NOW = 1_771_761_600.0
HOUR = 3600.0
GOOD = Backup(NOW - 27 * HOUR, "/var/backups/csi/csi-1.db", 1.0, 9, None)
FAILED = Backup(NOW - 60, "/mnt/usb/csi-2.db", 1.0, None, "disk full")


def judged(**changes):
    worker = WorkerStatus(NOW, LastHeartbeat(NOW, NOW - 86_400))
    return judge(SystemFacts(NOW, worker, **{"backup_max_age": 26 * HOUR} | changes))


@pytest.mark.parametrize(
    ("record", "timer", "severity"),
    [
        (BackupRecord(), True, None),
        (BackupRecord(NOW - 23 * HOUR), False, None),
        (BackupRecord(NOW - 25 * HOUR), False, "notice"),
        (BackupRecord(NOW - 25 * HOUR), True, None),
        (BackupRecord(NOW - 27 * HOUR), True, "degraded"),
        (BackupRecord(NOW - 999 * HOUR, GOOD), False, "degraded"),
    ],
    ids=["never started", "new", "none for a day", "timer runs tonight", "timer failed", "old"],
)
def test_when_an_old_backup_is_a_problem(record, timer, severity):
    found = judged(backups=record, backup_timer=timer).problems
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert [one.id for one in to_notify(found)] == (["backup_old"] if severity == "degraded" else [])


def test_a_failed_backup_is_one_problem_at_once_with_its_cause_and_a_command():
    found = judged(backups=BackupRecord(NOW - 999 * HOUR, GOOD, FAILED, NOW - 60)).problems
    (one,) = to_notify(found)
    assert (one.id, one.cause, one.is_proven) == ("backup_failed", "disk full", True)
    assert one.commands == ["csi db backup /mnt/usb"]


def test_backups_that_csi_does_not_make_are_no_problem():
    assert judged(backup_max_age=None, backups=BackupRecord(NOW - 999 * HOUR, GOOD, FAILED)).problems == ()
