"""Variables in the file, the environment above it, and secrets that are never shown."""

from pathlib import Path

import pytest

from csi.adapters.youtube_channel_rss import ChannelSettings
from csi.adapters.youtube_playlist import PlaylistSettings
from csi.config.loader import load, require_delivery
from csi.config.secrets import hide_password, secret_fault
from csi.config.settings import Settings
from csi.config.variables import UnsetVariable, expand
from csi.errors import ConfigError, MissingSetting

SOURCES = {"youtube_playlist": PlaylistSettings, "youtube_channel_rss": ChannelSettings}
CANARY = "canary-5f1c-do-not-show"


@pytest.fixture
def settings_of(tmp_path: Path):
    def read(text: str = "{}", **env: str) -> Settings:
        file = tmp_path / "config.yaml"
        file.write_text(text)
        return load(file, env=env, sources=SOURCES)

    return read


@pytest.fixture
def error_of(settings_of, tmp_path: Path):
    def read(text: str = "{}", **env: str) -> str:
        with pytest.raises(ConfigError) as error:
            settings_of(text, **env)
        return str(error.value).replace(f"{tmp_path}/", "")

    return read


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "1"),
        ("x${A}y${A}", "x1y1"),
        ("${NO:-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${NO:-}", ""),
        ("${NO:-a:b ? -c}", "a:b ? -c"),
        ("$${A}", "${A}"),
        ("$A $ $$ 5$", "$A $ $$ 5$"),
        ("${TRICK}", "${A}"),
        ("${A:?needed}", "1"),
    ],
)
def test_variables_expand_once(text: str, result: str) -> None:
    assert expand(text, {"A": "1", "EMPTY": "", "TRICK": "${A}"}) == result


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A B}", "${A:+x}", "${A:-${B}}", "${A-x}"])
def test_what_is_no_variable_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME"):
        expand(text, {"A": "1", "B": "2"})


@pytest.mark.parametrize(("text", "words"), [("${B}", "B is not set"), ("${B:?ask Ada}", "B is not set; ask Ada")])
def test_an_unset_variable_is_named(text: str, words: str) -> None:
    with pytest.raises(UnsetVariable, match=words.replace("?", r"\?")):
        expand(text, {})


def test_an_unset_variable_in_the_file_has_its_place(error_of) -> None:
    assert error_of("csi:\n  environment: ${STAGE}\n") == (
        "config.yaml:2:16: csi.environment: the variable STAGE is not set; "
        "set it in the environment, or write ${STAGE:-default}"
    )


def test_a_plain_variable_is_typed_and_a_quoted_one_is_text(settings_of) -> None:
    text = "sources: {youtube_playlist: {}}\ncsi:\n  environment: '${Q}'\nretention:\n  dlq_days: ${Q:-7}\n"
    settings = settings_of(text, Q="12")
    assert (settings.csi.environment, settings.retention.dlq_days) == ("12", 12)


def test_the_default_of_a_plain_variable_is_typed_too(settings_of) -> None:
    text = "features:\n  polling: ${P:-off}\nretention:\n  dlq_days: ${Q:-7}\n"
    settings = settings_of(text)
    assert (settings.features.polling, settings.retention.dlq_days) == (False, 7)


def test_a_variable_never_changes_the_structure(error_of) -> None:
    assert "expected a block" in error_of("delivery: ${X}\n", X="{allow_insecure_http: true}")
    assert "expected a list" in error_of("sources:\n  youtube_playlist:\n    playlists: ${X}\n", X="[{id: PLx}]")


def test_a_wrong_value_from_a_variable_is_not_shown(error_of) -> None:
    message = error_of("retention:\n  dlq_days: ${X}\n", X=CANARY)
    assert message == ("config.yaml:2:13: retention.dlq_days: expected a whole number (the value comes from ${X})")


def test_the_environment_wins_over_the_file(settings_of) -> None:
    text = (
        "csi: {instance_id: a, log_level: INFO, state_dir: /a, database: /a.db, queue: /aq.db}\n"
        "web: {port: 1}\ndelivery: {ua_endpoint: 'https://a/x'}\n"
    )
    settings = settings_of(
        text,
        CSI_INSTANCE_ID="b",
        CSI_LOG_LEVEL="debug",
        CSI_STATE_DIR="/b",
        CSI_DATABASE_URL="sqlite:////b.db",
        CSI_QUEUE_URL="redis://b/0",
        PORT="2",
        CSI_UA_ENDPOINT="https://b/x",
    )
    csi = settings.csi
    assert (csi.instance_id, csi.log_level, csi.state_dir) == ("b", "DEBUG", Path("/b"))
    assert (csi.database_url, csi.queue_url, settings.web.port) == ("/b.db", "redis://b/0", 2)
    assert settings.delivery.ua_endpoint == "https://b/x"


def test_an_empty_variable_counts_as_not_set(settings_of) -> None:
    settings = settings_of("csi: {instance_id: a}", CSI_INSTANCE_ID="", CSI_UA_SHARED_SECRET="", PORT="")
    assert (settings.csi.instance_id, settings.web.port, settings.delivery.shared_secret) == ("a", 8091, None)


def test_an_overridden_key_needs_no_variable(settings_of) -> None:
    assert settings_of("csi:\n  instance_id: ${NO}\n", CSI_INSTANCE_ID="b").csi.instance_id == "b"


def test_overrides_reach_blocks_that_are_absent_or_empty(settings_of) -> None:
    assert settings_of("web:\n", PORT="2").web.port == 2


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PORT", "many", "environment variable PORT: web.port: expected a whole number"),
        ("PORT", "70000", "environment variable PORT: web.port: expected at most 65535"),
        ("CSI_LOG_LEVEL", "loud", "environment variable CSI_LOG_LEVEL: csi.log_level: expected 'DEBUG'"),
        ("CSI_INSTANCE_ID", "a b", "environment variable CSI_INSTANCE_ID: csi.instance_id: expected text"),
        ("CSI_STATE_DIR", "a\0b", "environment variable CSI_STATE_DIR: csi.state_dir: contains a control"),
        (
            "CSI_UA_ENDPOINT",
            "ftp://x/",
            "environment variable CSI_UA_ENDPOINT: delivery.ua_endpoint: expected",
        ),
        (
            "CSI_DATABASE_URL",
            "mysql://x/",
            "environment variable CSI_DATABASE_URL: csi.database: expected a path",
        ),
        ("CSI_DB_PATH", "postgresql://x/", "environment variable CSI_DB_PATH: csi.database: expected a path"),
        ("CSI_DATABASE_URL_FILE", "/nowhere", "CSI_DATABASE_URL_FILE names a file that cannot be read"),
    ],
)
def test_a_wrong_variable_is_named(settings_of, name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of("{}", **{name: value})
    assert str(error.value).startswith(words) or words in str(error.value)


@pytest.mark.parametrize(
    ("in_file", "env", "chosen"),
    [
        (None, {}, "/var/lib/csi/csi.db"),
        (None, {"CSI_DB_PATH": "/p.db"}, "/p.db"),
        ("/f.db", {"CSI_DB_PATH": "/p.db"}, "/p.db"),
        ("/f.db", {"CSI_DATABASE_URL": "/u.db"}, "/u.db"),
        ("/f.db", {"CSI_DATABASE_URL": "/u.db", "CSI_DB_PATH": "/p.db"}, "/p.db"),
        ("postgresql://h/d", {"CSI_DB_PATH": "/p.db"}, "postgresql://h/d"),
        ("/f.db", {"CSI_DATABASE_URL": "postgresql://h/d", "CSI_DB_PATH": "/p.db"}, "postgresql://h/d"),
    ],
)
def test_which_database_is_used(settings_of, in_file: str | None, env: dict[str, str], chosen: str) -> None:
    text = f"csi: {{database: '{in_file}'}}" if in_file else "{}"
    assert settings_of(text, **env).csi.database_url == chosen


def test_secrets_come_from_the_environment(settings_of) -> None:
    settings = settings_of(
        "sources:\n  youtube_playlist: {api_key_env: MY_KEY}\n",
        CSI_UA_SHARED_SECRET="csi-test-secret",
        CSI_UA_BEARER_TOKEN="bearer",
        CSI_ADMIN_TOKEN="admin-0123",
        CSI_ADMIN_READ_TOKEN="reader-0123",
        CSI_QUEUE_SECRET="queue-0123",
        MY_KEY="AIzaSy-0123",
        YOUTUBE_API_KEY="not-asked-for",
    )
    assert settings.delivery.shared_secret.get_secret_value() == "csi-test-secret"
    assert settings.delivery.bearer_token.get_secret_value() == "bearer"
    assert settings.secrets.admin_token.get_secret_value() == "admin-0123"
    assert settings.secrets.admin_read_token.get_secret_value() == "reader-0123"
    assert settings.secrets.queue_secret.get_secret_value() == "queue-0123"
    assert {name: value.get_secret_value() for name, value in settings.secrets.named.items()} == {
        "MY_KEY": "AIzaSy-0123"
    }
    assert "0123" not in repr(settings)


@pytest.mark.parametrize(
    ("content", "secret"),
    [("long-secret\n", "long-secret"), ("long-secret\r\n", "long-secret"), ("long-secret", "long-secret")],
)
def test_a_secret_may_come_from_a_file(settings_of, tmp_path: Path, content: str, secret: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content.encode())
    for name in ("CSI_UA_SHARED_SECRET", "CSI_ADMIN_TOKEN", "YOUTUBE_API_KEY"):
        settings = settings_of(
            "delivery: {shared_secret: '${CSI_UA_SHARED_SECRET}'}\nsources: {youtube_playlist: {}}",
            **{f"{name}_FILE": str(file)},
        )
        found = [
            settings.delivery.shared_secret,
            settings.secrets.admin_token,
            *settings.secrets.named.values(),
        ]
        assert [value.get_secret_value() for value in found if value] == [secret]


def test_a_secret_and_its_file_are_not_both_allowed(error_of, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(CANARY)
    message = error_of("{}", CSI_UA_SHARED_SECRET=CANARY, CSI_UA_SHARED_SECRET_FILE=str(tmp_path / "secret"))
    assert "both CSI_UA_SHARED_SECRET and CSI_UA_SHARED_SECRET_FILE are set" in message
    assert CANARY not in message


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 100_000, b"", b"\n", b"a\nlong\nsecret"])
def test_a_file_that_holds_no_secret_is_refused(settings_of, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError, match="CSI_ADMIN_TOKEN"):
        settings_of("{}", CSI_ADMIN_TOKEN_FILE=str(tmp_path / "secret"))


@pytest.mark.parametrize(
    "value",
    [
        f"{CANARY}\n{CANARY}",
        f"{CANARY}\n",
        f" {CANARY}",
        f"{CANARY}\t",
        f"{CANARY}\x1b",
        f"{CANARY}ü",
        "your-secret-here",
        "YOUR_SECRET_HERE",
        "changeme",
        "change-me-please"[:9],
        "CSI_SHARED_SECRET",
        "CSI_UA_SHARED_SECRET",
        "<your secret>",
        "${CSI_UA_SHARED_SECRET}",
        "xxxxxxxxxxxx",
        "AIzaSy...",
        "%h",
        "1234567",
    ],
)
def test_a_malformed_secret_is_refused_by_name_and_never_shown(settings_of, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of("{}", CSI_UA_SHARED_SECRET=value)
    message = str(error.value)
    assert message.startswith("environment variable CSI_UA_SHARED_SECRET: ")
    assert message.count("\n") == 0
    assert CANARY not in message
    assert value not in message.replace("environment variable CSI_UA_SHARED_SECRET", "")


@pytest.mark.parametrize("value", ["csi-test-secret", "admin-token", "a b c d e f", "deadbeef" * 8, "$2y$!#%&=+/"])
def test_an_unusual_but_good_secret_is_taken(value: str) -> None:
    assert secret_fault(value, shortest=8) is None


@pytest.mark.parametrize("name", ["CSI_ADMIN_TOKEN", "CSI_FEED_TOKEN", "CSI_QUEUE_SECRET", "YOUTUBE_API_KEY"])
def test_every_secret_is_looked_at(settings_of, name: str) -> None:
    with pytest.raises(ConfigError, match=f"environment variable {name}: contains a line break"):
        settings_of("sources: {youtube_playlist: {}}", **{name: f"{CANARY}\n{CANARY}"})


@pytest.mark.parametrize(
    "written",
    [CANARY, f"'{CANARY}'", f"x-${{{'A'}}}", f"${{NO:-{CANARY}}}", "12345678", "[1]", "true", "{a: b}"],
)
@pytest.mark.parametrize("key", ["shared_secret", "bearer_token"])
def test_a_literal_secret_is_refused_with_the_remedy(error_of, written: str, key: str) -> None:
    message = error_of(f"delivery:\n  {key}: {written}\n", A="b")
    assert message.startswith(f"config.yaml:2:{5 + len(key)}: delivery.{key}: a secret does not belong in the file")
    assert "write ${CSI_UA_" in message
    assert CANARY not in message
    assert "\n" not in message


def test_a_secret_may_have_another_variable(settings_of, error_of) -> None:
    text = "delivery:\n  shared_secret: ${MINE}\n"
    assert settings_of(text, MINE=CANARY).delivery.shared_secret.get_secret_value() == CANARY
    both = settings_of(text, MINE=CANARY, CSI_UA_SHARED_SECRET="the-other-one")
    assert both.delivery.shared_secret.get_secret_value() == "the-other-one"
    with pytest.raises(ConfigError, match="environment variable MINE: is shorter than 8"):
        settings_of(text, MINE="short")
    assert "MINE is not set; ask Ada" in error_of("delivery:\n  shared_secret: ${MINE:?ask Ada}\n")


def test_a_secret_in_the_wrong_place_is_refused(error_of) -> None:
    message = error_of("csi:\n  environment: ${YOUTUBE_API_KEY}\n", YOUTUBE_API_KEY=CANARY)
    assert message.startswith("config.yaml:2:16: csi.environment: YOUTUBE_API_KEY is a secret")
    assert CANARY not in message


def test_the_key_itself_is_no_name_of_a_variable(error_of) -> None:
    message = error_of("sources:\n  youtube_playlist:\n    api_key_env: AIzaSyCANARY\n")
    assert "looks like the key itself" in message
    assert "AIza" not in message


@pytest.mark.parametrize("url", ["postgresql://u:PW@h/d", "redis://:PW@h/0", "postgresql://h/d?user=u&password=PW"])
def test_a_password_in_a_url_of_the_file_is_refused(settings_of, error_of, url: str) -> None:
    message = error_of(f"csi:\n  queue: {url}\n")
    assert "csi.queue: a password does not belong in the file" in message
    assert "PW" not in message
    assert settings_of(f"csi:\n  queue: {url.replace('PW', '${P}')}\n", P="pw").csi.queue_url == url.replace("PW", "pw")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@ss:w@h/d", "postgresql://u:********@h/d"),
        ("redis://:pw@h/0", "redis://:********@h/0"),
        ("postgresql://h/d?password=pw&a=b", "postgresql://h/d?password=********&a=b"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("/var/lib/csi/csi.db", "/var/lib/csi/csi.db"),
    ],
)
def test_a_password_in_a_url_is_hidden(url: str, shown: str) -> None:
    assert hide_password(url) == shown


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({}, ["CSI_UA_ENDPOINT", "CSI_UA_SHARED_SECRET"]),
        ({"CSI_UA_ENDPOINT": "https://h/x"}, ["CSI_UA_SHARED_SECRET"]),
        ({"CSI_UA_SHARED_SECRET": "csi-test-secret"}, ["CSI_UA_ENDPOINT"]),
    ],
)
def test_what_does_not_deliver_loads_and_what_delivers_refuses(settings_of, env: dict[str, str], named: list[str]):
    text = "delivery:\n  ua_endpoint: ${CSI_UA_ENDPOINT}\n  shared_secret: ${CSI_UA_SHARED_SECRET}\n"
    settings = settings_of(text, **env)
    with pytest.raises(MissingSetting) as error:
        require_delivery(settings)
    assert error.value.exit_code == 4
    assert f"{' and '.join(named)} not set" in str(error.value)
    assert "/etc/csi/env" in str(error.value)


def test_delivery_with_endpoint_and_secret_is_ready(settings_of) -> None:
    require_delivery(settings_of("{}", CSI_UA_ENDPOINT="https://h/x", CSI_UA_SHARED_SECRET="csi-test-secret"))


def test_a_demanded_endpoint_is_an_error_when_unset(error_of) -> None:
    assert "E is not set; ask Ada" in error_of("delivery:\n  ua_endpoint: ${E:?ask Ada}\n")
