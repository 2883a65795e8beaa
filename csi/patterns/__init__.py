"""Regular expressions from a person: they must compile, and must not be able to take for ever.

Python's `re` has no time limit, and a pattern such as `(a+)+$` takes years over a title that almost matches. What can
match one text in many ways is therefore refused, and titles are cut to TITLE_WINDOW before they are searched (YouTube's
are at most 100 characters): what remains is at worst slow, not endless.
"""

import importlib
import re
from collections.abc import Iterator
from typing import Any

TITLE_WINDOW = 200
LONGEST = 300
MANY = 20
MOST_OPEN = 3
_ENDLESS = "a repetition inside a repetition can take for ever; write it without the outer one"

# The standard library's own parser; private, but the same from 3.11 on. There is no public one.
_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)


def check_pattern(text: str) -> str:
    """The same text, or a ValueError that says what is wrong with it."""
    if not text or len(text) > LONGEST:
        raise ValueError(f"expected a regular expression of 1 to {LONGEST} characters")
    try:
        re.compile(text)
        parsed = _parser.parse(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    if any(node[0] in _REPEATS and _is_endless(node[1][1], node[1][2]) for node in _nodes(parsed)):
        raise ValueError(_ENDLESS)
    if _open_repeats(parsed) > MOST_OPEN:
        raise ValueError(f"expected at most {MOST_OPEN} open repetitions (*, +, {{n,}}) in a row")
    return text


def _is_endless(times: int, body: Any) -> bool:
    """Can so many repetitions of this body match one text in very many ways?"""
    inner = list(_nodes(body))
    varying = [node[1][1] for node in inner if node[0] in _REPEATS and node[1][1] > node[1][0]]
    if varying and times * max(varying) > MANY:
        return True
    return times > MANY / 2 and any(node[0] is _constants.BRANCH and _overlap(node[1][1]) for node in inner)


def _overlap(branches: Any) -> bool:
    """Alternatives are apart when each begins with a character of its own."""
    firsts = [branch[0] if len(branch) else None for branch in branches]
    letters = {first[1] for first in firsts if first and first[0] is _constants.LITERAL}
    return len(letters) < len(firsts)


def _open_repeats(tree: Any) -> int:
    """How many repetitions one attempt may go through, which is the power of the length that it may take."""
    return sum(_open_in(node) for node in tree)


def _open_in(node: Any) -> int:
    if node[0] is _constants.BRANCH:
        return max(map(_open_repeats, node[1][1]))
    own = node[0] in _REPEATS and node[1][1] > MANY
    return own + sum(map(_open_repeats, _trees(node[1])))


def _nodes(tree: Any) -> Iterator[Any]:
    for node in tree:
        yield node
        for inner in _trees(node[1]):
            yield from _nodes(inner)


def _trees(value: Any) -> Iterator[Any]:
    """A node's arguments hold further trees, in tuples and lists of any shape."""
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _trees(part)
