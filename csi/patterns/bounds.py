"""How often Python's `re` can begin a part of a pattern while it searches one title: an upper bound, from its text."""

import importlib
import re
from itertools import accumulate
from typing import Any

TITLE_WINDOW = 200
"""Characters of a title that are searched. YouTube's titles have 100 at most."""

MOST_WAYS = 2_000_000
"""`.*foo.*bar.*` is within it (1,300,000), `\\w{0,20}` five times is not. A way takes 10 to 700 ns."""

# The standard library's own parser; private, but the same from 3.11 on. There is no public one.
parser: Any = importlib.import_module("re._parser")
codes: Any = importlib.import_module("re._constants")
SINGLES = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
ASSERTIONS = (codes.ASSERT, codes.ASSERT_NOT)

Paths = list[int]
"""For each place of a title, in how many ways the search can arrive there."""


class _TooMany(Exception):
    """The count is above MOST_WAYS."""


def ways(text: str) -> int:
    """MOST_WAYS + 1 stands for any larger number."""
    tree = parser.parse(text)
    count = _Count(tree.state, has_line_anchors="m" in "".join(re.findall(r"\(\?([a-zA-Z]+)", text)))
    try:
        count.follow(tree, [1] * (TITLE_WINDOW + 1))  # a search begins at every place
    except _TooMany:
        return MOST_WAYS + 1
    return min(count.total, MOST_WAYS + 1)


class _Count:
    """Follows all paths through a pattern at once, over a title where each character matches each part."""

    def __init__(self, state: Any, *, has_line_anchors: bool) -> None:
        self.total, self._state = 0, state
        self._only_at_start = {codes.AT_BEGINNING_STRING} | (set() if has_line_anchors else {codes.AT_BEGINNING})

    def follow(self, tree: Any, paths: Paths) -> Paths:
        for code, given in tree:
            # `re` finds the literal after a repetition at the speed of a string search, so literals are not counted.
            if code is not codes.LITERAL:
                self.total += sum(paths)
            if self.total > MOST_WAYS:
                raise _TooMany
            paths = self._after(code, given, paths)
        return paths

    def _after(self, code: Any, given: Any, paths: Paths) -> Paths:
        if code in SINGLES:
            return [0, *paths[:-1]]
        if code in REPEATS:
            least, most, body = given
            return self._after_repeat(least, most, body, paths)
        if code is codes.AT and given in self._only_at_start:
            return [paths[0]] + [0] * TITLE_WINDOW
        if code is codes.BRANCH and _exclude_each_other(given[1]):
            ends = [self.follow(branch, paths) for branch in given[1]]
            return [max(column) for column in zip(*ends, strict=True)]
        if code is codes.GROUPREF:
            least = self._state.groupwidths[given][0]
            return _shifted(paths, least, least)
        ends = [self.follow(body, paths) for body in trees(given)]
        # Look-around consumes nothing, and `re` does not return into it for another result.
        return paths if code in ASSERTIONS or not ends else _sum(ends)

    def _after_repeat(self, least: int, most: int, body: Any, paths: Paths) -> Paths:
        if len(body) == 1 and body[0][0] in SINGLES:
            return _shifted(paths, least, most)
        if body.getwidth()[1] == 0:
            # Rounds that consume nothing end at the same place, and each number of rounds is a way of its own.
            most = least + 1 if most is codes.MAXREPEAT else most
            before = self.total
            self.follow(body, paths)
            self.total += (self.total - before) * max(most - 1, 0)
            return [(most - least + 1) * path for path in paths]
        ends = [paths] if least == 0 else []
        # `re` ends a repetition after a round that consumed nothing, once it has the least number of rounds.
        for number in range(1, min(most, min(least, TITLE_WINDOW) + TITLE_WINDOW) + 1):
            paths = self.follow(body, paths)
            if not any(paths):
                return _sum(ends)
            ends += [paths] if number >= least else []
        if least > 2 * TITLE_WINDOW:
            raise _TooMany
        return _sum(ends)


def _shifted(paths: Paths, least: int, most: int) -> Paths:
    """After `least` to `most` characters: the sum over a sliding part of the places."""
    sums = [0, *accumulate(paths)]
    places = range(len(paths))
    return [sums[max(place - least + 1, 0)] - sums[max(place - most, 0)] for place in places]


def _sum(ends: list[Paths]) -> Paths:
    return [sum(column) for column in zip(*ends, strict=True)] if ends else [0] * (TITLE_WINDOW + 1)


def _exclude_each_other(branches: Any) -> bool:
    """Alternatives of one length that begin with different letters, in any case: one title leads into one of them."""
    firsts = [branch[0] if len(branch) else None for branch in branches]
    letters = {chr(first[1]).casefold().upper() for first in firsts if first and first[0] is codes.LITERAL}
    widths = {width for branch in branches for width in branch.getwidth()}
    return len(letters) == len(firsts) and len(widths) == 1


def trees(value: Any) -> list[Any]:
    """A node's arguments hold further trees, in tuples and lists of any shape."""
    if isinstance(value, parser.SubPattern):
        return [value]
    return [tree for part in value for tree in trees(part)] if isinstance(value, tuple | list) else []
