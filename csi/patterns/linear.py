"""Translate a pattern for RE2, which searches in linear time, so that it means what it means in Python's `re`.

RE2 knows letters and word boundaries of ASCII alone and folds case differently. So RE2 never sees a title: characters
that all parts of the pattern treat alike become one symbol, in the pattern and in each title, and `re` itself says
which characters a part matches. A word character becomes an ASCII letter: RE2's `\\b` is then right for every script.
"""

import importlib
import re
import string
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from csi.patterns.bounds import TITLE_WINDOW, codes, parser

compiler: Any = importlib.import_module("re._compiler")

MEMORY = 1024 * 1024
"""For one pattern. It also bounds the time, which is the length of the title times the size of the program."""

PLANES = 0x40000
"""No letter, digit or space has a code from here on, so this character stands for all of them."""

_WORD_SYMBOLS = string.ascii_letters + string.digits + "_"
_TYPES = re.ASCII | re.UNICODE | re.LOCALE
_MEANING = re.ASCII | re.UNICODE | re.IGNORECASE | re.DOTALL


class NotLinear(Exception):
    """RE2 is not installed, or cannot express this pattern."""


@dataclass(frozen=True)
class CharacterSet:
    """A part of a pattern that matches one character, as Python's parser writes it: a literal, a dot, a set."""

    code: Any
    given: Any
    flags: int


NEWLINE = CharacterSet(codes.LITERAL, ord("\n"), 0)


@lru_cache(maxsize=1)
def engine() -> Any | None:
    """RE2, or None where it is not installed. Loaded with the first pattern: it takes 3 MB."""
    try:
        return importlib.import_module("re2")
    except ImportError:
        return None


def translate(text: str) -> "LinearPattern":
    """NotLinear where RE2 would not give the result of `re`."""
    re2 = engine()
    if re2 is None:
        raise NotLinear
    return LinearPattern(text, re2)


class LinearPattern:
    """RE2's program for a pattern, and the alphabet that it is written in."""

    def __init__(self, text: str, re2: Any) -> None:
        tree, reader = parser.parse(text), _Reader()
        parts = list(reader.parts(tree, tree.state.flags))
        self._alphabet = _Alphabet(reader)
        options = re2.Options()
        options.log_errors, options.max_mem = False, MEMORY
        spelled = [part if isinstance(part, str) else self._alphabet.spell(part) for part in parts]
        try:
            self._program = re2.compile("".join(spelled), options)
        except re2.error as error:
            raise NotLinear from error

    def matches(self, title: str) -> bool:
        return self._program.search(self._alphabet.write(title[:TITLE_WINDOW])) is not None


class _Reader:
    """Walks through a parsed pattern and notes what its alphabet must tell apart."""

    def __init__(self) -> None:
        self.sets: dict[CharacterSet, None] = {NEWLINE: None}
        self.words: dict[CharacterSet, None] = {}
        self.has_line_anchors = self.has_end_anchors = False

    def parts(self, tree: Any, flags: int) -> Iterator[str | CharacterSet]:
        """RE2's syntax, with sets in the place of characters. Groups capture nothing: the result is yes or no."""
        for code, given in tree:
            match str(code):
                case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                    yield self._set(code, tuple(given) if isinstance(given, list) else given, flags)
                case "MAX_REPEAT" | "MIN_REPEAT":
                    least, most, body = given
                    # More rounds than the title has characters are any number of rounds.
                    limit = "" if most >= TITLE_WINDOW else most
                    yield from ("(?:", *self.parts(body, flags), f"){{{least},{limit}}}")
                case "SUBPATTERN":
                    _, added, removed, body = given
                    kept = flags & ~_TYPES if added & _TYPES else flags
                    yield from ("(?:", *self.parts(body, (kept | added) & ~removed), ")")
                case "BRANCH":
                    for number, branch in enumerate(given[1]):
                        yield from ("|" if number else "(?:", *self.parts(branch, flags))
                    yield ")"
                case "AT":
                    yield self._anchor(str(given), flags)
                case _:
                    raise NotLinear  # look-around, back-references, atomic groups

    def _set(self, code: Any, given: Any, flags: int) -> CharacterSet:
        members = given if code is codes.IN else [(code, given)]
        literals = [value for kind, value in members if kind in (codes.LITERAL, codes.NOT_LITERAL)]
        ranges = [value for kind, value in members if kind is codes.RANGE]
        if any(literal >= PLANES for literal in literals) or any(
            low > PLANES or PLANES <= high < 0x10FFFF for low, high in ranges
        ):
            raise NotLinear
        found = CharacterSet(code, given, flags & _MEANING)
        self.sets[found] = None
        return found

    def _anchor(self, name: str, flags: int) -> str:
        match name:
            case "AT_BEGINNING" | "AT_END" if flags & re.MULTILINE:
                self.has_line_anchors = True
                return "(?m:^)" if name == "AT_BEGINNING" else "(?m:$)"
            case "AT_BEGINNING" | "AT_BEGINNING_STRING":
                return r"\A"
            case "AT_END":
                self.has_end_anchors = True  # also before a newline that is the last character
                return "(?m:$)"
            case "AT_END_STRING":
                return r"\z"
            case "AT_BOUNDARY":
                word = CharacterSet(codes.IN, ((codes.CATEGORY, codes.CATEGORY_WORD),), flags & _TYPES)
                self.sets[word] = self.words[word] = None
                return r"\b"
        raise NotLinear  # \B, which means different things for an empty title


class _Alphabet:
    """One symbol for all characters that the pattern's sets do not tell apart."""

    def __init__(self, reader: _Reader) -> None:
        if len(reader.words) > 1 or (reader.has_line_anchors and reader.has_end_anchors):
            raise NotLinear
        edges = {one: _edges(one) for one in reader.sets}
        self._starts = sorted({0}.union(*edges.values()))
        owners = [frozenset(one for one in edges if bisect_right(edges[one], start) % 2) for start in self._starts]
        # Word characters become what RE2 takes for word characters, where the pattern asks for their boundaries
        groups = dict.fromkeys(owners)
        word = next(iter(reader.words), None)
        letters, others = iter(_WORD_SYMBOLS), map(chr, count(0x100))
        try:
            self._by_owners = {group: next(letters if word in group else others) for group in groups}
        except RuntimeError as error:
            raise NotLinear from error
        if reader.has_line_anchors:  # RE2 must see every newline; otherwise only one that is the last character
            self._by_owners[next(one for one in owners if NEWLINE in one)] = "\n"
        self._symbols = [self._by_owners[one] for one in owners]

    def spell(self, one: CharacterSet) -> str:
        """The set as a class of symbols. None of them has a meaning in RE2's syntax."""
        members = {symbol for owners, symbol in self._by_owners.items() if one in owners}
        members |= {"\n" for owners in self._by_owners if one in owners and NEWLINE in owners}
        return f"[{''.join(sorted(members))}]" if members else r"[^\x00-\x{10FFFF}]"

    def write(self, title: str) -> str:
        text = title.translate(self)
        return text[:-1] + "\n" if title.endswith("\n") else text

    def __getitem__(self, code: int) -> str:
        """For str.translate. Nothing is remembered, so that titles cannot fill the memory."""
        return self._symbols[bisect_right(self._starts, min(code, PLANES)) - 1]


@lru_cache(maxsize=2048)
def _edges(one: CharacterSet) -> tuple[int, ...]:
    """Where the set begins and ends, in turn, in the order of codes; `re` itself decides."""
    if one.code is codes.LITERAL and not one.flags & re.IGNORECASE:
        return one.given, one.given + 1
    state = parser.State()
    state.flags = one.flags
    single = parser.SubPattern(state, [(one.code, list(one.given) if one.code is codes.IN else one.given)])
    run = compiler.compile(parser.SubPattern(state, [(codes.MAX_REPEAT, (1, codes.MAXREPEAT, single))]))
    return tuple(edge for found in run.finditer(_every_character()) for edge in found.span())


@lru_cache(maxsize=1)
def _every_character() -> str:
    return "".join(map(chr, range(PLANES + 1)))
