"""Regular expressions that an operator writes for titles: they must compile, and no title may take long to search.

Python's `re` has no time limit and keeps the interpreter's lock: `(a+)+$` over one title stops every thread of a worker
for years. A pattern is therefore searched by RE2, in linear time, where `google-re2` is installed and can express it
(`linear`). Otherwise the pattern stays with `re`, if the number of ways in which it can match is bounded (`bounds`) and
if it was quick over adversarial strings in a child process (`trial`). Titles are cut to TITLE_WINDOW. # decision 0040
"""

import re
from collections.abc import Iterable

from csi.patterns import bounds, linear, trial
from csi.patterns.bounds import TITLE_WINDOW

LONGEST = 1000
REMEMBERED = 1000


class PatternRefused(ValueError):
    """A pattern that is not applied to titles, and what the operator can do."""


class BacktrackingPattern:
    """Python's `re`, for a pattern that is bounded and was quick in its trial."""

    def __init__(self, text: str) -> None:
        self._compiled = re.compile(text)

    def matches(self, title: str) -> bool:
        return self._compiled.search(title[:TITLE_WINDOW]) is not None


TitlePattern = linear.LinearPattern | BacktrackingPattern

# A reload and a hundred watches with one pattern cost one trial. Two threads that judge the same pattern at the same
# time come to the same verdict, so there is no lock.
_verdicts: dict[str, TitlePattern | PatternRefused] = {}


def check_pattern(text: str) -> str:
    """The same text, or PatternRefused."""
    compile_pattern(text)
    return text


def compile_pattern(text: str) -> TitlePattern:
    """The pattern, compiled once for this process. PatternRefused says what is wrong and what to do."""
    verdict = _verdicts.get(text) or judge([text])[text]
    if isinstance(verdict, PatternRefused):
        raise PatternRefused(*verdict.args)
    return verdict


def judge(texts: Iterable[str]) -> dict[str, TitlePattern | PatternRefused]:
    """A verdict for each pattern. Those that need a trial share one child process; without them there is none."""
    found = {text: _verdicts.get(text) or _judge_without_trial(text) for text in texts}
    untried = [text for text, verdict in found.items() if verdict is None]
    tried = zip(untried, trial.run(untried), strict=True) if untried else ()
    judged = {text: verdict for text, verdict in found.items() if verdict is not None}
    judged |= {
        text: PatternRefused(f"{fault}; {_remedy()}") if fault else BacktrackingPattern(text) for text, fault in tried
    }
    if len(_verdicts) + len(judged) > REMEMBERED:
        _verdicts.clear()
    _verdicts.update(judged)
    return judged


def _judge_without_trial(text: str) -> TitlePattern | PatternRefused | None:
    """None: it stays with `re`, and needs a trial."""
    if not text or len(text) > LONGEST:
        return PatternRefused(f"expected a regular expression of 1 to {LONGEST:,} characters")
    try:
        re.compile(text)
        return linear.translate(text)
    except linear.NotLinear:
        too_many = bounds.ways(text) > bounds.MOST_WAYS
    except (re.error, OverflowError, RecursionError) as error:
        return PatternRefused(f"expected a regular expression: {error}")
    if not too_many:
        return None
    words = f"this pattern can match one title in more than {bounds.MOST_WAYS:,} ways, which takes too long"
    return PatternRefused(f"{words}; {_remedy()}")


def _remedy() -> str:
    if linear.engine() is not None:
        return "use fewer repetitions, or write it without look-around, back-references and atomic groups"
    return "use fewer repetitions (*, +, {m,n}), or install creator-signals[re2], which searches it in linear time"
