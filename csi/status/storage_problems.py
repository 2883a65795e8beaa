"""Problems of the database and its disk. Rules over facts; pure."""

from collections.abc import Iterator

from csi.status.facts import SystemFacts
from csi.status.problems import Problem
from csi.store.database_faults import DatabaseFault

PASSING = ("locked", "away", "unusable")
"""Kinds of faults that may pass by themselves; one answer proves the others."""
SECTIONS = {
    "full": "the-disk-is-full",
    "failing": "the-disk-is-full",
    "damaged": "the-database-is-damaged",
    "emptied": "the-database-lacks-its-tables",
    "newer": "the-database-is-newer",
}
"""Sections of the runbook, by kind; that of the problem for the others."""


def problems(facts: SystemFacts) -> Iterator[Problem]:
    storage = facts.storage
    if storage.fault is not None:
        yield problem_of(storage.fault)
    if storage.nearly_full and not (storage.fault is not None and storage.fault.kind == "full"):
        effect = "polling stops until space is free; stored events are still delivered"
        room = "free space on the disk: `csi prune --yes` removes rows past their retention"
        yield Problem(
            *("storage", "disk", "degraded", storage.nearly_full, effect, room),
            fails=("ready", "alert"),
            section=SECTIONS["full"],
        )


def problem_of(fault: DatabaseFault, since: float | None = None) -> Problem:
    return Problem(
        "storage",
        "disk" if fault.kind == "full" else "database",
        "down",
        fault.text,
        "nothing can be stored or delivered",
        f"{fault.remedy}; `csi db status` says more",
        since,
        fails=("ready", "alert"),
        is_proven=fault.kind not in PASSING,
        section=SECTIONS.get(fault.kind),
    )
