"""Problems of backups: failed, too old, never made. Rules over facts; pure."""

from collections.abc import Iterator

from csi.status.facts import SystemFacts
from csi.status.problems import Problem

NEVER_SECONDS = 86_400.0
"""An installation without the timer may exist this long without a backup."""


def problems(facts: SystemFacts) -> Iterator[Problem]:
    if facts.backup_max_age is not None:
        failed = facts.backups.last_failed
        if failed is not None:
            yield Problem(
                *("backup_failed", "backup", "degraded", "the last backup failed", _risk(facts)),
                f"{_command(failed.target)} shows the error; free space or correct the directory, then run it again",
                since=facts.backups.failing_since,
                fails=("alert",),
                cause=failed.error,
                is_proven=True,
            )
        yield from _old_backup(facts, facts.backup_max_age)


def _old_backup(facts: SystemFacts, max_age: float) -> Iterator[Problem]:
    good, known = facts.backups.last_good, facts.backups.known_since
    if good is not None:
        if facts.now - good.at > max_age:
            what = f"the last good backup was made {_ago(facts.now - good.at)} ago"
            remedy = _remedy(facts, good.target)
            due = good.at + max_age
            yield Problem(
                *("backup_old", "backup", "degraded", what, _risk(facts), remedy), since=due, fails=("alert",)
            )
        return
    limit = max_age if facts.backup_timer else NEVER_SECONDS
    if known is not None and facts.now - known > limit:
        what = "no backup of the database was ever made"
        remedy = _remedy(facts, None)
        if facts.backup_timer:
            what += ", although the timer csi-backup is enabled"
            yield Problem(
                *("backup_old", "backup", "degraded", what, _risk(facts), remedy), since=known + limit, fails=("alert",)
            )
        else:
            yield Problem("backup_old", "backup", "notice", what, _risk(facts), remedy, since=known + limit)


def _risk(facts: SystemFacts) -> str:
    good = facts.backups.last_good
    lost = "all events and settings" if good is None else f"what was stored in the last {_ago(facts.now - good.at)}"
    return f"if the disk is lost, {lost} would be lost with it"


def _remedy(facts: SystemFacts, target: str | None) -> str:
    if facts.backup_timer:
        return "`systemctl status csi-backup.timer csi-backup.service` says why; `systemctl start csi-backup` makes one"
    return (
        f"{_command(target)}, every day from a timer; or set `csi.backup_max_age_seconds: null` if you make backups "
        "in another way"
    )


def _command(target: str | None) -> str:
    """The directory of the last backup: the command gives each file there a new name."""
    directory = target.rpartition("/")[0] if target else ""
    return f"`csi db backup {directory or '/var/backups/csi'}`"


def _ago(seconds: float) -> str:
    hours = max(seconds, 0.0) / 3600
    return f"{hours / 24:,.0f} days" if hours >= 72 else f"{hours:,.0f} hours"
