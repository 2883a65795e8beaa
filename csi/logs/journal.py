"""Priorities for systemd's journal: a line that begins with `<3>` is an error there (sd-daemon(3))."""

import os
import sys
from contextlib import suppress
from typing import TextIO

PRIORITIES = {"CRITICAL": 2, "ERROR": 3, "WARNING": 4, "SUCCESS": 5, "INFO": 6, "DEBUG": 7, "TRACE": 7}


def is_journal(stream: TextIO) -> bool:
    """Whether the service manager connected this stream to the journal: JOURNAL_STREAM has its device and inode."""
    wanted = os.environ.get("JOURNAL_STREAM")
    if wanted:
        with suppress(OSError, ValueError, AttributeError):  # a closed stream, or one without a file
            there = os.fstat(stream.fileno())
            return wanted == f"{there.st_dev}:{there.st_ino}"
    return False


def with_priority(text: str, level: str) -> str:
    """Each line with its priority: the journal makes an entry of every line."""
    mark = f"<{PRIORITIES.get(level, 6)}>"
    return "\n".join(mark + line for line in text.split("\n"))


def print_error(sentence: str) -> None:
    """The sentence with which a process ends, on stderr."""
    text = f"csi: {sentence}"
    sys.stderr.write((with_priority(text, "ERROR") if is_journal(sys.stderr) else text) + "\n")
