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
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any

TITLE_SECONDS = 0.1
"""For one title, in the better of two searches. Processor time: a busy machine refuses no pattern."""

PATTERN_SECONDS = 2.0
"""For all titles of a pattern. Titles that were not searched by then could be slow, so the pattern is refused."""

WAIT_SECONDS = 30.0
LENGTH = 200
MOST_LITERALS = 24
MOST_IN_PAIRS = 12
CANDIDATES = "".join(map(chr, range(128))) + "éßÀſİıΩжЯאع३०字かナ한ก٣½²€—“\u00a0\u2003\u0301\u200d🎬\U00050000"

_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
_TYPES = re.ASCII | re.UNICODE | re.LOCALE


SingleCharacter = tuple[str, Any, int]
"""The name of a part that matches one character, its arguments as the parser writes them, and its flags."""


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
    words = {
        b"quick": None,
        b"slow": f"this pattern takes more than {TITLE_SECONDS:g} s over a title",
        b"unfinished": f"this pattern takes more than {PATTERN_SECONDS:g} s over the titles of its trial",
    }
    verdicts = [words[line] for line in said.split() if line in words][: len(patterns)]
    missing = len(patterns) - len(verdicts)
    return verdicts + ["this pattern could not be tried on long titles"] * missing


def adversarial(text: str) -> list[str]:
    """Titles that almost match: letters and the pattern's literals over and over, alone, in pairs, after each other."""
    tree = _parser.parse(text)
    sets = [*_sets(tree, tree.state.flags)]
    literals = [chr(given) for name, given, _ in sets if name == "LITERAL"][:MOST_LITERALS]
    alphabet = letters([*dict.fromkeys(sets)])
    paired = [*dict.fromkeys([*alphabet[:MOST_IN_PAIRS], *"a "])]
    titles = [unit * LENGTH for unit in alphabet]
    titles += ["".join(literals[:length]) * LENGTH for length in range(2, len(literals) + 1)]
    titles += ["".join(literals) + letter * LENGTH for letter in alphabet]
    titles += [title for one in literals for title in ((one + "a") * LENGTH, (one + " ") * LENGTH)]
    titles += [
        title for one, other in permutations(paired, 2) for title in ((one + other) * LENGTH, one + other * LENGTH)
    ]
    cut = dict.fromkeys(title[:LENGTH] for title in titles)
    return [*cut, *(title[:-1] + "\x00" for title in cut)]


def letters(sets: list[SingleCharacter]) -> list[str]:
    """One character for each combination of sets that have a member in common; those in the most sets first."""
    searches = [_compile(one) for one in sets]
    known = {*CANDIDATES, *(chr(given) for name, given, _ in sets if name == "LITERAL")}
    pool = "".join(sorted(known))
    strangers = [search.search(_every_character()) for search in searches if not search.search(pool)]
    pool += "".join(found[0] for found in strangers if found)
    members = [set(search.findall(pool)) for search in searches]
    by_owners: dict[tuple[int, ...], str] = {}
    for letter in pool:
        by_owners.setdefault(tuple(number for number, one in enumerate(members) if letter in one), letter)
    return [by_owners[owners] for owners in sorted(by_owners, key=len, reverse=True)]


@lru_cache(maxsize=1)
def _every_character() -> str:
    return "".join(map(chr, range(sys.maxunicode + 1)))


def _compile(one: SingleCharacter) -> re.Pattern[str]:
    name, given, flags = one
    state = _parser.State()
    state.flags = flags
    code = getattr(importlib.import_module("re._constants"), name)
    node = (code, list(given) if isinstance(given, tuple) else given)
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [node]))
    return compiled


def _sets(tree: Any, flags: int) -> Iterator[SingleCharacter]:
    """Every part that matches one character, in the order of the pattern."""
    for code, given in tree:
        if str(code) in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            yield str(code), tuple(given) if isinstance(given, list) else given, flags
        elif str(code) == "SUBPATTERN":
            _, added, removed, body = given
            kept = flags & ~_TYPES if added & _TYPES else flags
            yield from _sets(body, (kept | added) & ~removed)
        else:
            for body in _trees(given):
                yield from _sets(body, flags)


def _trees(value: Any) -> list[Any]:
    if isinstance(value, _parser.SubPattern):
        return [value]
    return [tree for part in value for tree in _trees(part)] if isinstance(value, tuple | list) else []


def _raise_too_slow(number: int, frame: object) -> None:
    raise TooSlow


def judge(text: str) -> str:
    """The child's verdict on one pattern: quick, slow or unfinished."""
    compiled, ends = re.compile(text), time.process_time() + PATTERN_SECONDS
    for title in adversarial(text):
        if time.process_time() > ends:
            return "unfinished"
        if not _is_quick(compiled, title) and not _is_quick(compiled, title):
            return "slow"
    return "quick"


def _is_quick(compiled: re.Pattern[str], title: str) -> bool:
    with suppress(TooSlow):
        # `re` looks for signals while it searches, so the timer ends this search and the next pattern follows.
        signal.setitimer(signal.ITIMER_VIRTUAL, TITLE_SECONDS)
        compiled.search(title)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return True
    return False


if __name__ == "__main__":
    signal.signal(signal.SIGVTALRM, _raise_too_slow)
    for pattern in json.load(sys.stdin):
        print(judge(pattern), flush=True)  # noqa: T201 the answer to the parent
