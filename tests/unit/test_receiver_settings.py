"""The receiver's environment variables: a bad secret is refused and not shown."""

from pathlib import Path

import pytest

from csi.errors import ConfigError, MissingSetting
from csi.receiver.settings import BEARER, DB_PATH, ENABLED, INSTANCES, PREVIOUS, SECRET, from_env

GOOD = "a-real-secret-0123456789"


def test_defaults_from_the_secret_alone() -> None:
    settings = from_env({SECRET: GOOD})
    assert settings.enabled
    assert settings.secrets == settings.bearer_tokens == [GOOD]
    assert settings.allowed_instances == frozenset()
    assert settings.db_path == Path("csi-receiver.db")
    assert (settings.max_body_bytes, settings.max_in_flight) == (8 * 1024 * 1024, 32)


def test_every_variable_is_read() -> None:
    env = {SECRET: GOOD, PREVIOUS: "the-old-secret", BEARER: "another-token", DB_PATH: "/tmp/x.db"}
    settings = from_env(env | {ENABLED: "0", INSTANCES: " csi-1, ,csi-2,"})
    assert settings.secrets == [GOOD, "the-old-secret"]
    assert settings.bearer_tokens == ["another-token"]
    assert settings.allowed_instances == {"csi-1", "csi-2"}
    assert settings.db_path == Path("/tmp/x.db")
    assert not settings.enabled


def test_the_command_line_wins_over_the_variable() -> None:
    assert from_env({SECRET: GOOD, DB_PATH: "a.db"}, db_path=Path("b.db")).db_path == Path("b.db")


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{GOOD}\n")
    assert from_env({f"{SECRET}_FILE": str(file)}).secret == GOOD


@pytest.mark.parametrize("env", [{}, {SECRET: ""}, {f"{SECRET}_FILE": "/no/such/file"}])
def test_no_secret_no_start(env: dict[str, str]) -> None:
    with pytest.raises(MissingSetting, match=SECRET) as caught:
        from_env(env)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "bad",
    [
        "short",
        "your-secret-here",
        "CHANGEME",
        "<your secret>",
        "${SECRET_NAME}",
        "two words here",
        "line\nbreak-secret",
        "tab\tsecret-long",
        "umlaut-geheimnis-ü",
        "surrogate-\udc80-secret",
        "x" * 2000,
        "CSI_SHARED_SECRET",
        "xxxxxxxxxxxx",
        "replace_me_secret",
        "AIzaSy......",
        " padded-secret-1 ",
    ],
)
@pytest.mark.parametrize("name", [SECRET, PREVIOUS, BEARER])
def test_a_malformed_secret_is_refused_by_name_and_never_shown(name: str, bad: str) -> None:
    with pytest.raises(MissingSetting, match=name) as caught:
        from_env({SECRET: GOOD} | {name: bad})
    assert bad.strip() not in str(caught.value)


@pytest.mark.parametrize("good", ["csi-test-secret", "my-shared-secret", "8letters", "your-own-long-secret-77"])
def test_a_weak_word_is_still_a_secret(good: str) -> None:
    assert from_env({SECRET: good}).secret == good


def test_an_empty_file_is_not_a_secret(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(MissingSetting, match=f"{SECRET}_FILE"):
        from_env({f"{SECRET}_FILE": str(tmp_path / "empty")})


def test_both_forms_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"both .* are set"):
        from_env({SECRET: GOOD, f"{SECRET}_FILE": "/x"})


def test_the_switch_takes_only_known_words() -> None:
    with pytest.raises(ConfigError, match=ENABLED):
        from_env({SECRET: GOOD, ENABLED: "maybe"})


def test_repr_shows_no_secret() -> None:
    shown = repr(from_env({SECRET: GOOD, PREVIOUS: "the-old-secret", BEARER: "another-token"}))
    assert not any(word in shown for word in (GOOD, "the-old-secret", "another-token"))
