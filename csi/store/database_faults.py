"""Identify what is wrong with a database from the text of its error: a kind, a sentence, a remedy. Pure."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["full", "locked", "read_only", "damaged", "failing", "emptied", "newer", "away", "unusable"]


@dataclass(frozen=True)
class DatabaseFault:
    """Shown on unauthenticated pages (/readyz), so the texts name no path, no host and no user."""

    kind: Kind
    text: str
    remedy: str


FULL = DatabaseFault("full", "the disk is full", "free disk space; processing resumes when there is enough")
LOCKED = DatabaseFault(
    "locked",
    "another process holds the database's write lock",
    "find it (fuser -v on the file) and close it; processing resumes when the lock is released",
)
READ_ONLY = DatabaseFault(
    "read_only",
    "the database cannot be opened for writing",
    "check the owner and mode of the state directory, and whether its file system is mounted read-only",
)
DAMAGED = DatabaseFault(
    "damaged",
    "the database is damaged",
    "stop worker and sidecar, keep its files and restore the last backup, or save what can be read: csi db repair",
)
FAILING = DatabaseFault(
    "failing",
    "the disk reports an error",
    "see the kernel's log (dmesg), the disk quota and the limit of file sizes; processing resumes when files can be "
    "written; csi db status says whether the database is damaged",
)
EMPTIED = DatabaseFault(
    "emptied",
    "the database lacks its tables: its file was removed, replaced or emptied",
    "stop worker and sidecar, then put the last backup in its place: csi db restore FILE; without a backup, a worker "
    "that starts begins with an empty database",
)
NEWER = DatabaseFault(
    "newer",
    "the database was made by a newer csi",
    "install the newer version again, or restore a backup from before the upgrade",
)
AWAY = DatabaseFault("away", "the database server does not answer", "start it, and check csi.database")
UNUSABLE = DatabaseFault("unusable", "the database cannot be used", "run csi db status for details")

_ERROR_TEXTS: tuple[tuple[DatabaseFault, tuple[str, ...]], ...] = (
    (NEWER, ("made by a newer csi",)),
    (FULL, ("disk is full", "no space left", "disk full")),
    (LOCKED, ("is locked", "table is locked", "did not answer within")),
    (
        READ_ONLY,
        ("readonly database", "read-only", "cannot be opened for writing", "unable to open", "permission denied"),
    ),
    (DAMAGED, ("not a database", "malformed", "integrity check", " is damaged")),
    (EMPTIED, ("no such table",)),
    (FAILING, ("disk i/o error", "input/output error", "file too large")),
    (AWAY, ("connection failed", "connection refused", "could not connect", "server closed the connection")),
)


def identify(error: object) -> DatabaseFault:
    """The first fault whose known error text occurs in this error; UNUSABLE when none does."""
    text = str(error).lower()
    return next((fault for fault, known in _ERROR_TEXTS if any(part in text for part in known)), UNUSABLE)
