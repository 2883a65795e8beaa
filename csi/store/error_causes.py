"""What is wrong with a database, by the words of its error: one name, one sentence, one remedy. Pure."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["full", "locked", "read_only", "damaged", "newer", "away", "unusable"]


@dataclass(frozen=True)
class DatabaseFault:
    """A sentence for whoever looks from outside: it names no path, no host and no user."""

    kind: Kind
    text: str
    remedy: str


FULL = DatabaseFault("full", "the disk is full", "make room; everything goes on by itself")
LOCKED = DatabaseFault(
    "locked",
    "somebody holds the database's write lock",
    "find who (fuser -v on the file) and close it; everything goes on by itself",
)
READ_ONLY = DatabaseFault(
    "read_only",
    "the database cannot be opened for writing",
    "look at the owner and mode of the state directory, and whether its file system is mounted read-only",
)
DAMAGED = DatabaseFault("damaged", "the database is damaged", "keep its files and restore the last backup")
NEWER = DatabaseFault(
    "newer",
    "the database was made by a newer csi",
    "install that version again, or restore a backup from before the upgrade",
)
AWAY = DatabaseFault("away", "the database server does not answer", "start it, and look at csi.database")
UNUSABLE = DatabaseFault("unusable", "the database cannot be used", "csi db status says more")

_WORDS: tuple[tuple[DatabaseFault, tuple[str, ...]], ...] = (
    (NEWER, ("made by a newer csi",)),
    (FULL, ("disk is full", "no space left", "disk full")),
    (LOCKED, ("is locked", "table is locked", "did not answer within")),
    (
        READ_ONLY,
        ("readonly database", "read-only", "cannot be opened for writing", "unable to open", "permission denied"),
    ),
    (DAMAGED, ("not a database", "malformed", "disk i/o error", "integrity check")),
    (AWAY, ("connection failed", "connection refused", "could not connect", "server closed the connection")),
)


def identify(error: object) -> DatabaseFault:
    """The first that fits."""
    text = str(error).lower()
    return next((trouble for trouble, words in _WORDS if any(word in text for word in words)), UNUSABLE)
