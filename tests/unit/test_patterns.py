"""Patterns for titles: which are accepted, that RE2 gives the result of `re`, and that no title takes long."""

import re
import subprocess
import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi import patterns
from csi.patterns import BacktrackingPattern, PatternRefused, bounds, compile_pattern, linear, trial
from csi.patterns.linear import LinearPattern

EIGHT = r"\w{0,20}" * 8 + "!"
SLOW = [
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+$",
    "(.*)*x",
    r"(\w+\s?)*$",
    "(x+x+)+y",
    "(.|\n)*z",
    "((a*)*)*b",
    ".*.*.*.*=",
    EIGHT,
]
WRONG = ["[", "(?P<x>a)(?P<x>b)", "a{99999999999}", "", "x" * 1001]
NOT_FOR_RE2 = [r"(?<!no )ads", "(?=a)a", r"(a)\1", "(?>a+)b", "a++b", r"\Bx", r"(?m:^a)b$", "\U0005ffff"]


needs_re2 = pytest.mark.skipif(linear.engine() is None, reason="google-re2 is not installed")


@pytest.fixture
def no_re2(monkeypatch):
    monkeypatch.setattr(linear, "engine", lambda: None)
    monkeypatch.setattr(patterns, "_verdicts", {})


@pytest.fixture
def no_child(monkeypatch):
    """A trial fails the test."""
    monkeypatch.setattr(patterns, "_verdicts", {})
    monkeypatch.setattr(trial, "run", lambda texts: pytest.fail(f"tried {texts} in a child process"))


@needs_re2
@pytest.mark.parametrize(
    "text",
    [
        *("(?i)tutorial|how to", r"^\d{1,3}:", "(foo|bar)+", "a.*b|c.*d|e.*f|g.*h", r"(\d{1,3}\.){3}", ".+", r"\bAI\b"),
        *SLOW,
    ],
)
@pytest.mark.usefixtures("no_child")
def test_re2_takes_usual_and_slow_patterns_without_a_trial(text):
    assert isinstance(compile_pattern(text), LinearPattern)


@needs_re2
@pytest.mark.parametrize("text", SLOW)
@pytest.mark.parametrize("title", ["a" * 100, "a" * 99 + "!", "é" * 5000, "x" * 300, "字" * 100])
def test_no_title_takes_long_with_re2(text, title):
    compiled, started = compile_pattern(text), time.process_time()
    compiled.matches(title)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("text", [*SLOW, "(?:a?){50}", "((a{0,10}){0,10}){0,10}"])
@pytest.mark.usefixtures("no_re2", "no_child")
def test_without_re2_slow_patterns_are_refused_by_their_bound(text):
    with pytest.raises(PatternRefused, match=r"more than 2,000,000 ways.*install creator-signals\[re2\]"):
        compile_pattern(text)


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.usefixtures("no_child")
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(PatternRefused, match="expected a regular expression"):
        compile_pattern(text)


@pytest.mark.parametrize("text", NOT_FOR_RE2)
def test_what_re2_cannot_express_stays_with_re(text):
    with pytest.raises(linear.NotLinear):
        linear.translate(text)


@needs_re2
def test_a_refused_pattern_names_the_remedy_that_helps_here():
    with pytest.raises(PatternRefused, match="write it without look-around"):
        compile_pattern(r"(?<!x)(a+)+$")


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        *[("abc", 0), ("a*", 201), (".*.*", 201 + 20301), ("(?m)^.*.*", 201 + 201 + 20301)],
        # `^` is tried at all 201 places, what follows it at one
        *[("^a*", 202), (r"^\w\d", 203), (r"^a{3}b", 202), (r"\Aa?b?", 204), ("^.*.*", 403), (r"^(?:\b){9}", 211)],
        *[(r"^\w{0,20}\w{0,20}", 223), ("^(?=.*x)(?!.*y).*", 206), (r"^(.)\1{3,}", 404), ("^(?:)*", 202)],
        *[(r"^(?:\b){4000000000}", bounds.MOST_WAYS + 1), (r"(?:a(?=a){0,9})*\d+", bounds.MOST_WAYS + 1)],
    ],
)
def test_ways_of_a_pattern(text, ways):
    assert bounds.ways(text) == ways


@pytest.mark.parametrize("text", [r"(?:^(a|b)?)*?.{2,40}", "(?:(?!b.*){0,9}(a|b)*^)+[ab]", "(?:^a?){4000000000}"])
def test_the_count_ends_soon_for_rounds_that_may_consume_nothing(text):
    started = time.process_time()
    bounds.ways(text)
    assert time.process_time() - started < 1


ORDINARY = [
    *(r"(?i)\b(live|stream)\b", r"^\[.*\].*#\d+", ".*foo.*bar.*", r"(.)\1{3,}", "(?<!x).*foo.*bar.*", "a.*b.*c.*d"),
    *(r"^(?!.*sponsored).*$", r"^(?=.*a)(?=.*b)(?!.*c).*$", r"(?i)^(?!.*\b(shorts?|ads)\b).*\b(review|test)\b.*$"),
]
UNUSUAL_LETTERS = [
    r"(?!x)" + r"[^\W\da-fé字_x]{0,80}" * 4 + "W",
    r"(?<!x)" + r"[^\x00-\x7fа-я]{0,80}" * 4 + "W",
    r"(?<=Q)" + r"[^\W\da-z]{0,80}" * 4 + "W",
    r"(?!x)" + "[\u1200-\u1240]{0,80}" * 4 + "W",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_patterns_are_within_the_bound(text):
    assert bounds.ways(text) <= bounds.MOST_WAYS


@pytest.mark.parametrize("text", UNUSUAL_LETTERS)
@pytest.mark.usefixtures("no_child")
def test_a_slow_pattern_of_unusual_letters_is_refused_by_its_bound(text):
    with pytest.raises(PatternRefused, match="more than 2,000,000 ways"):
        compile_pattern(text)


@pytest.mark.parametrize(
    "part", [r"[^\W\da-fé字_x]", r"[^\x00-\x7f]", "[\u1200-\u1240]", r"[^\w\s]", "(?i:[Ж-Я])", r"(?a:\W)", "[^ -~]"]
)
def test_a_trial_searches_titles_of_the_members_of_each_set(part):
    run = re.compile(f"{part}{{{trial.LENGTH}}}")
    assert any(run.fullmatch(title) for title in trial.adversarial(f"(?!x){part}*0"))


def test_a_trial_begins_titles_with_what_look_behind_demands():
    assert "Q" + "A" * 199 in trial.adversarial("(?<=Q)[AB]{0,80}W")


def test_a_pattern_whose_trial_does_not_end_in_time_is_refused(monkeypatch):
    monkeypatch.setattr(trial, "PATTERN_SECONDS", 0.0)
    assert trial.judge("(?<!b)a") == "unfinished"
    done = subprocess.CompletedProcess([], 0, b"unfinished\nquick\n")
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: done)
    assert trial.run(["a", "b"]) == ["this pattern takes more than 0 s over the titles of its trial", None]


@needs_re2
def test_one_trial_for_many_patterns_and_none_for_a_second_look(monkeypatch):
    runs = []
    monkeypatch.setattr(patterns, "_verdicts", {})
    monkeypatch.setattr(trial, "run", lambda texts: runs.append(texts) or [None, "this pattern is slow"])
    for _ in range(3):
        patterns.judge(["(?<!b)a", "(?<!b)c", "usual"])
    assert runs == [["(?<!b)a", "(?<!b)c"]]
    assert isinstance(compile_pattern("(?<!b)a"), BacktrackingPattern)
    with pytest.raises(PatternRefused, match="this pattern is slow; use fewer repetitions"):
        compile_pattern("(?<!b)c")


@needs_re2
def test_verdicts_are_not_remembered_without_limit(monkeypatch):
    monkeypatch.setattr(patterns, "_verdicts", {})
    for number in range(patterns.REMEMBERED + 10):
        compile_pattern(f"x{number}")
    assert len(patterns._verdicts) <= patterns.REMEMBERED


@needs_re2
@pytest.mark.parametrize("text", ["z", "(?<!b)z"])
def test_titles_are_cut_before_they_are_searched(text, monkeypatch):
    monkeypatch.setattr(trial, "run", lambda texts: [None for _ in texts])
    monkeypatch.setattr(patterns, "_verdicts", {})
    compiled = compile_pattern(text)
    assert compiled.matches("a" * 199 + "z")
    assert not compiled.matches("a" * 200 + "z")


# ── RE2 and `re` agree ──────────────────────────────────────────────────────────────────────────────────


@needs_re2
@pytest.mark.parametrize(
    "text",
    [
        *(
            "(?i)straße",
            "(?i)k",
            "(?i)i",
            "(?i)σ",
            "(?i)[a-z]+$",
            "(?ia)k",
            r"\w+",
            r"(?a)\w+",
            r"\d",
            r"\s",
            r"[^\W\d_]",
        ),
        *(
            r"\bäh\b",
            r"\b字\b",
            "^a$",
            r"\Aa\Z",
            "(?m)^b$",
            "a.b",
            "(?s)a.b",
            "[^a]",
            "[^a-z]$",
            r"[^\s\S]",
            "a{250,300}",
        ),
        *(
            "[\U00010000-\U0010ffff]",
            "x|",
            "(?x) a  b # c",
            "(?:(?i:a)b)+",
            "日本|東京",
            "a{0,1000}b",
            r"(?i)\bfoo|(?-i:BAR)",
        ),
    ],
)
@pytest.mark.parametrize(
    "title",
    [
        *(
            "",
            "a",
            "a\n",
            "a\nb",
            "b\na\n",
            "\n",
            "a\n\n",
            "A B",
            "STRASSE",
            "straße",
            "STRAẞE",
            "K",
            "ſ",
            "İ",
            "ı",
            "ς Σ",
        ),
        *(
            "äh",
            "wäh",
            "äh!",
            "Äh äh",
            "字",
            "字字",
            "x字",
            "٣",
            "½",
            "\u2003",
            "\ud800",
            "🎬",
            "日本",
            "a\u0301",
            "BAR",
            "bar",
        ),
        *("ab" * 150, "a" * 199 + "\n" + "b", "\U00050000", "\U0010ffff"),
    ],
)
def test_re2_gives_the_result_of_re(text, title):
    assert linear.translate(text).matches(title) == bool(re.search(text, title[:200]))


ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "字",
        " ",
        ".",
        r"\w",
        r"\d",
        r"\s",
        r"\W",
        "[ab]",
        "[^a]",
        "[a-zé]",
        r"\b",
        "^",
        "$",
        "I",
        "ß",
        "1",
        r"\n",
    ]
)
REPEATS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{0,2}"])
PATTERNS = st.recursive(
    st.builds("".join, st.lists(ATOMS, min_size=1, max_size=3)),
    lambda inner: (
        st.builds(lambda body, repeat: f"(?:{body}){repeat}", inner, REPEATS)
        | st.builds(lambda left, right: left + right, inner, inner)
        | st.builds(lambda left, right: f"(?:{left}|{right})", inner, inner)
    ),
    max_leaves=4,
)
FLAGS = st.sampled_from(["", "(?i)", "(?s)", "(?a)", "(?m)"])


@needs_re2
@given(FLAGS, PATTERNS, st.text(alphabet="abéI字ßı1 \n_!", max_size=12))
def test_re2_and_re_agree_on_simple_patterns(flags, body, title):
    text = flags + body
    assert linear.translate(text).matches(title) == bool(re.search(text, title))


def test_characters_beyond_the_planes_are_neither_letters_nor_digits_nor_spaces():
    beyond = map(chr, range(linear.PLANES, sys.maxunicode + 1))
    assert not [one for one in beyond if one.isalnum() or one.isspace() or one.lower() != one]
    assert unicodedata.category(chr(linear.PLANES)) == "Cn"
