"""Search adversarial strings with patterns in a child process, which a slow pattern cannot take with it.

This file is also the child's script. It runs isolated (`-I -S`), so it imports the standard library alone.
"""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

TITLE_SECONDS = 0.5
"""For one title. Processor time: a busy machine refuses no pattern."""

PATTERN_SECONDS = 2.0
"""Then the trial of a pattern ends; no title was slow so far."""

WAIT_SECONDS = 30.0
LENGTH = 200
MOST_LITERALS = 24
_LETTERS = "a0 _!é字"


class TooSlow(Exception):
    """The processor time of one title is used up."""


def run(patterns: list[str]) -> list[str | None]:
    """For each pattern None, or why it is refused. One child for all of them."""
    command = [sys.executable, "-I", "-S", str(Path(__file__))]
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH")}  # no secrets
    limit = WAIT_SECONDS + 4 * PATTERN_SECONDS * len(patterns)
    try:
        done = subprocess.run(  # noqa: S603 our own interpreter and file; patterns are its input
            command, input=json.dumps(patterns).encode(), capture_output=True, timeout=limit, env=env, check=False
        )
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
    except OSError as error:
        return [f"this pattern could not be tried on long titles: {error.strerror}" for _ in patterns]
    words = {b"quick": None, b"slow": f"this pattern takes more than {TITLE_SECONDS:g} s over a title"}
    verdicts = [words[line] for line in said.split() if line in words][: len(patterns)]
    missing = len(patterns) - len(verdicts)
    return verdicts + ["this pattern could not be tried on long titles"] * missing


def adversarial(text: str) -> list[str]:
    """Titles that almost match: characters and the pattern's literals over and over."""
    parsed = importlib.import_module("re._parser").parse(text)
    literals = [chr(code) for code in _literals(parsed)][:MOST_LITERALS]
    units = [*dict.fromkeys([*literals, *_LETTERS])]
    units += ["".join(literals[:length]) for length in range(2, len(literals) + 1)]
    units += [literal + filler for literal in dict.fromkeys(literals) for filler in "a "]
    units += ["a ", "a0", "a.", "aA"]
    titles = [(unit * LENGTH)[:LENGTH] for unit in dict.fromkeys(units)]
    return [*titles, *(title[:-1] + "\x00" for title in titles)]


def _literals(tree: Any) -> list[int]:
    """Every character that the pattern names, in its order."""
    if isinstance(tree, tuple) and len(tree) == 2 and str(tree[0]) in ("LITERAL", "NOT_LITERAL", "RANGE"):
        return [tree[1] if isinstance(tree[1], int) else tree[1][0]]
    if isinstance(tree, tuple | list) or hasattr(tree, "getwidth"):
        return [code for part in tree for code in _literals(part)]
    return []


def _raise_too_slow(number: int, frame: object) -> None:
    raise TooSlow


def _is_quick(text: str) -> bool:
    compiled, ends = re.compile(text), time.process_time() + PATTERN_SECONDS
    with suppress(TooSlow):
        for title in adversarial(text):
            # `re` looks for signals while it searches, so the timer ends this search and the next pattern follows.
            signal.setitimer(signal.ITIMER_VIRTUAL, TITLE_SECONDS)
            compiled.search(title)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if time.process_time() > ends:
                break
        return True
    return False


if __name__ == "__main__":
    signal.signal(signal.SIGVTALRM, _raise_too_slow)
    for pattern in json.load(sys.stdin):
        print("quick" if _is_quick(pattern) else "slow", flush=True)  # noqa: T201 the answer to the parent
