"""In how many ways Python's `re` can try to match a pattern at one place of a title: an upper bound, from its text."""

import importlib
from functools import reduce
from typing import Any

TITLE_WINDOW = 200
"""Characters of a title that are searched. YouTube's titles have 100 at most."""

MOST_WAYS = 50_000_000
"""Three open repetitions in a row (200 × 200 × 200) are within it, `\\w{0,20}` six times is not."""

# The standard library's own parser; private, but the same from 3.11 on. There is no public one.
parser: Any = importlib.import_module("re._parser")
codes: Any = importlib.import_module("re._constants")
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def ways(text: str) -> int:
    """MOST_WAYS + 1 stands for any larger number."""
    return _ways_of_all(parser.parse(text))


def _ways_of_all(tree: Any) -> int:
    return reduce(lambda product, node: _capped(product * _ways(node)), tree, 1)


def _ways(node: Any) -> int:
    code, given = node
    if code in REPEATS:
        return _ways_of_repeat(*given)
    if code is codes.BRANCH:
        return _ways_of_branches(given[1])
    return reduce(lambda product, tree: _capped(product * _ways_of_all(tree)), trees(given), 1)


def _ways_of_repeat(least: int, most: int, body: Any) -> int:
    """The sum over all numbers of rounds. A body of variable length is tried anew in each round."""
    narrowest, widest = body.getwidth()
    most = min(most, max(least, TITLE_WINDOW // max(narrowest, 1)))
    each = _ways_of_all(body)
    if each == 1 and narrowest == widest:
        return most - min(least, most) + 1
    total, rounds = int(least == 0), 1
    for number in range(1, most + 1):
        rounds = _capped(rounds * max(each, 2))
        total = _capped(total + rounds) if number >= least else total
        if total > MOST_WAYS or rounds > MOST_WAYS:
            return MOST_WAYS + 1
    return total


def _ways_of_branches(branches: Any) -> int:
    """Alternatives that begin with different characters exclude each other."""
    counts = [_ways_of_all(branch) for branch in branches]
    firsts = [branch[0] if len(branch) else None for branch in branches]
    letters = {first[1] for first in firsts if first and first[0] is codes.LITERAL}
    return max(counts) if len(letters) == len(firsts) else _capped(sum(counts))


def trees(value: Any) -> list[Any]:
    """A node's arguments hold further trees, in tuples and lists of any shape."""
    if isinstance(value, parser.SubPattern):
        return [value]
    return [tree for part in value for tree in trees(part)] if isinstance(value, tuple | list) else []


def _capped(number: int) -> int:
    return min(number, MOST_WAYS + 1)
