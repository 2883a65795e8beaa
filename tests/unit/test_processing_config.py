"""processing.yaml: defaults without a file, and errors with their line."""

from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from csi.errors import ConfigError, MissingSetting
from csi.processing.config import load, read_secrets
from csi.processing.settings import ProcessingSettings
from tests.fakes.pages import ROOT

EXAMPLE = ROOT / "config" / "processing.example.yaml"


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "processing.yaml"
    file.write_text(text)
    return file


def test_without_a_file_the_defaults_need_no_key():
    settings = load(None, env={})
    assert settings == ProcessingSettings()
    assert read_secrets(settings, {}).all == []
    assert settings.budget.daily_usd == Decimal("5.0000")


def test_the_example_holds_every_key_with_its_default_and_a_comment():
    assert load(EXAMPLE, env={}) == ProcessingSettings()
    given = yaml.safe_load(EXAMPLE.read_text())
    assert _keys(given) == _keys(ProcessingSettings().model_dump(mode="json"))
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert [line for line in lines if " # " not in line] == []


def _keys(value: object, path: str = "") -> set[str]:
    if not isinstance(value, dict) or not value:
        return {path}
    return {key for name, inner in value.items() for key in _keys(inner, f"{path}.{name}")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget:\n  daily_usd: lots\n", ":2:14: budget.daily_usd: expected an amount of US dollars"),
        ("budgets: {}\n", ":1:1: budgets: unknown key; did you mean budget?"),
        ("limits:\n  max_duraton: 5\n", ":2:3: limits.max_duraton: unknown key; did you mean max_duration?"),
        ("limits:\n  max_duration: soon\n", "expected seconds (90, 1.5) or a duration"),
        ("routes:\n  x:\n    action: eat\n", ":3:13: routes.x.action: "),
        ("paused: true\npaused: false\n", ":2:1: paused: written twice; the first is in line 1"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: *b\n" + "d: [*b]\n" * 100, "more than 100 aliases"),
        ("a: !!python/object:os.system x\n", ":1:4: the tag !!python/object:os.system is not allowed"),
        ("limits: [\n", "not valid YAML"),
        ("- 1\n", "expected keys and values"),
        ("limits:\n  skip_title: '('\n", "expected a regular expression"),
        ("limits:\n  skip_title: '(?<!b)(a+)+$'\n", "more than 2,000,000 ways"),
        ("transcription:\n  providers: []\n", ":2:14: transcription.providers: "),
    ],
    ids=[
        "money",
        "unknown block",
        "unknown key",
        "duration",
        "action",
        "twice",
        "alias",
        "tag",
        "yaml",
        "list",
        "regex",
        "slow regex",
        "no provider",
    ],
)
def test_a_fault_has_its_line_and_says_what_to_do(tmp_path, text, said):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), env={})
    assert said in str(caught.value)


def test_all_faults_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, "paused: maybe\nlog_level: LOUD\n"), env={})
    assert len(str(caught.value).splitlines()) == 2


def test_routes_are_added_to_the_prds_two(tmp_path):
    settings = load(write(tmp_path, "routes:\n  news:\n    action: digest\n"), env={})
    assert set(settings.routes) == {"youtube_tutorial_explainer", "creator_watchlist_handler", "news"}


def test_an_empty_file_and_a_key_without_a_value_mean_the_defaults(tmp_path):
    for text in ("", "# nothing\n", "limits:\nbudget:\n  daily_usd:\n"):
        assert load(write(tmp_path, text), env={}) == ProcessingSettings()


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"processing\.example\.yaml"):
        load(tmp_path / "nope.yaml", env={})


def test_the_environment_names_directories(tmp_path):
    env = {"CSI_PROCESSING_STATE_DIR": "/x/state", "UA_SIGNALS_DB_PATH": "/x/r.db"}
    settings = load(None, env=env)
    assert (str(settings.state_dir), str(settings.receiver_db)) == ("/x/state", "/x/r.db")


def test_a_needed_key_is_named_and_never_shown(tmp_path):
    settings = load(write(tmp_path, "transcription:\n  providers: [assemblyai]\n"), env={})
    with pytest.raises(MissingSetting, match="ASSEMBLYAI_API_KEY is not set"):
        read_secrets(settings, {})
    with pytest.raises(MissingSetting) as caught:
        read_secrets(settings, {"ASSEMBLYAI_API_KEY": "with a blank"})
    assert "with a blank" not in str(caught.value)
    file = tmp_path / "key"
    file.write_text("assembly-key-1\n")
    assert read_secrets(settings, {"ASSEMBLYAI_API_KEY_FILE": str(file)}).assemblyai == "assembly-key-1"
    with pytest.raises(ConfigError, match="both ASSEMBLYAI_API_KEY and ASSEMBLYAI_API_KEY_FILE are set"):
        read_secrets(settings, {"ASSEMBLYAI_API_KEY": "assembly-key-1", "ASSEMBLYAI_API_KEY_FILE": str(file)})


def test_no_secret_is_in_a_runs_snapshot_or_a_repr():
    secrets = read_secrets(
        ProcessingSettings(), {"OPENAI_API_KEY": "sk-canary-123", "CSI_NOTIFY_URLS": "tgram://canary"}
    )
    assert "canary" not in repr(secrets)
    snapshot = ProcessingSettings(database="postgresql://u:canary@h/d").snapshot()
    assert "canary" not in str(snapshot)
