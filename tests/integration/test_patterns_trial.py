"""The trial of a pattern, in a real child process."""

import json
import subprocess
import sys
import time

import pytest

from csi import patterns
from csi.adapters import registry
from csi.config.loader import read_config
from csi.errors import ConfigError
from csi.patterns import BacktrackingPattern, PatternRefused, compile_pattern, linear, trial

USUAL = [
    *(r"(?<!no )ads", r"(?i)(?=.*rust)(?=.*async)", r"(\w)\1", "a.*b.*c.*d", r"^\[[^\]]+\]", "(?>a+)b", r"(.)\1{3,}"),
    *(r"(?i)\b(live|stream)\b", r"^\[.*\].*#\d+", ".*foo.*bar.*", "(?<!x).*foo.*bar.*", r"^(?!.*sponsored).*$"),
    *(r"^(?=.*a)(?=.*b)(?!.*c).*$", r"(?i)^(?!.*\b(shorts?|ads)\b).*\b(review|test)\b.*$"),
]
FOUR = r"\w{0,20}" * 4 + "!"
FIVE = r"\w{0,20}" * 5 + "!"
SLOW = [FIVE, f"(?<!x){FIVE}", "[b-d]{0,20}" * 5 + "e", r"([^,]{0,20})" * 5 + r",\1", "[é字]{0,20}" * 5 + "!"]
SLOW += [
    r"(?!x)" + r"[^\W\da-fé字_x]{0,80}" * 4 + "W",
    r"(?<!x)" + r"[^\x00-\x7fа-я]{0,80}" * 3 + "W",
    r"(?<=Q)" + r"[^\W\da-z]{0,80}" * 4 + "W",
    r"(?!x)" + "[\u1200-\u1240]{0,80}" * 4 + "W",
]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(patterns, "_verdicts", {})


@pytest.fixture
def children(monkeypatch):
    """How many child processes were started."""
    started, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: started.append(given) or run(*given, **more))
    return started


def test_slow_patterns_are_refused_and_do_not_spoil_those_after_them(children):
    mixed = [*SLOW, *USUAL]
    verdicts = dict(zip(mixed, trial.run(mixed), strict=True))
    assert [text for text, fault in verdicts.items() if fault] == SLOW
    assert verdicts[FIVE] == "this pattern takes more than 0.1 s over a title"
    assert len(children) == 1


@pytest.mark.parametrize("text", USUAL)
def test_usual_patterns_pass_without_re2(text, monkeypatch):
    monkeypatch.setattr(linear, "engine", lambda: None)
    compiled, started = compile_pattern(text), time.process_time()
    assert isinstance(compiled, BacktrackingPattern)
    compiled.matches("a" * 100_000)
    assert time.process_time() - started < 2


def test_a_child_that_does_not_answer_refuses_the_pattern(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PatternRefused, match="could not be tried"):
        compile_pattern("(?<!b)a")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert trial.run(["a"]) == ["this pattern could not be tried on long titles: No such file or directory"]


def test_the_child_is_given_no_secrets(monkeypatch):
    given = {}
    monkeypatch.setenv("CSI_UA_SHARED_SECRET", "hidden")
    monkeypatch.setattr(
        subprocess, "run", lambda *a, **more: given.update(more) or subprocess.CompletedProcess(a, 0, b"quick\n")
    )
    assert trial.run(["a"]) == [None]
    assert set(given["env"]) <= {"PATH", "LD_LIBRARY_PATH"}


@pytest.mark.skipif(linear.engine() is None, reason="google-re2 is not installed")
@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        ([], 0),
        (["(?i)tutorial", r"\bads\b"], 0),
        (["(?<!no )ads", "(?<!b)a", "(?=c)c", "(?<!b)a"], 1),
    ],
)
def test_a_configuration_starts_a_child_only_where_re2_does_not_serve(tmp_path, children, titles, expected):
    rows = [{"channel_id": f"UC{number:022}", "title": {"not": text}} for number, text in enumerate(titles)]
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"sources": {"youtube_channel_rss": {"watchlist": rows}}}))
    for _ in range(2):  # the second is a reload
        read_config(path, env={}, sources=registry.settings_models())
    assert len(children) == expected


def test_a_slow_pattern_is_a_config_error_with_line_and_column(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"sources:\n  youtube_channel_rss:\n    title:\n      match: '(?<!x){FOUR}'\n")
    with pytest.raises(ConfigError) as caught:
        read_config(path, env={}, sources=registry.settings_models())
    assert f"{path}:4:" in str(caught.value)
    assert "takes more than 0.1 s over a title; use fewer repetitions" in str(caught.value)


def test_re2_is_not_loaded_without_patterns():
    code = "import sys; from csi import patterns; patterns.judge([]); sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
