"""The configuration file: what loads, what is refused and with which words."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csi.adapters.youtube_channel_rss import ChannelSettings
from csi.adapters.youtube_playlist import PlaylistSettings
from csi.config import loader
from csi.config.loader import LoadedConfig, file_model, load, read_config
from csi.config.source_settings import FirstPollLast
from csi.config.variables import OVERRIDES, SECRET_KEYS, SECRETS
from csi.errors import ConfigError

DATA = Path(__file__).parents[1] / "data" / "config"
SOURCES = {"youtube_playlist": PlaylistSettings, "youtube_channel_rss": ChannelSettings}
ENV = {
    "CSI_UA_ENDPOINT": "http://localhost:8000/api/v1/signals/ingest",
    "CSI_UA_SHARED_SECRET": "csi-test-secret",
    "YOUTUBE_API_KEY": "AIza-test-key",
}


def read(folder: Path, text: str | bytes, env: dict[str, str] | None = None) -> LoadedConfig:
    file = folder / "config.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_config(file, env=env or {}, sources=SOURCES)


def message(folder: Path, text: str | bytes) -> str:
    with pytest.raises(ConfigError) as error:
        read(folder, text)
    assert error.value.exit_code == 3
    return str(error.value).replace(f"{folder}/", "")


def test_the_prds_example_loads_unchanged() -> None:
    loaded = read_config(DATA / "prd.yaml", env=ENV, sources=SOURCES)
    playlist, channel = (
        loaded.settings.sources["youtube_playlist"],
        loaded.settings.sources["youtube_channel_rss"],
    )
    assert isinstance(playlist, PlaylistSettings)
    assert playlist.adaptive_polling.active_interval_seconds == 30
    assert [watch.ref for watch in (*playlist.watches, *channel.watches)] == ["PLxxx", "UCxxx"]
    assert loaded.settings.route_profiles["channel_watchlist"].tags == ("watchlist", "notification")
    assert loaded.settings.delivery.ua_endpoint == ENV["CSI_UA_ENDPOINT"]
    assert loaded.settings.delivery.priority_behavior.of("high_volume").batch_size == 500
    assert loaded.settings.secrets.named["YOUTUBE_API_KEY"].get_secret_value() == "AIza-test-key"
    assert loaded.warnings == ()
    assert [fault.rpartition(": ")[2] for fault in loaded.faults] == [
        "PLxxx is a placeholder; write the real id",
        "UCxxx is a placeholder; write the real id",
    ]


def test_all_problems_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    with pytest.raises(ConfigError) as error:
        load(Path("broken.yaml"), env={}, sources=SOURCES)
    assert str(error.value).splitlines() == (DATA / "broken.expected").read_text().splitlines()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("csii: {}", "config.yaml:1:1: csii: unknown key; did you mean csi?"),
        (
            "secrets: {admin_token: x}",
            "config.yaml:1:1: secrets: unknown key; known: catalog, csi, delivery, dlq, features",
        ),
        (
            "sources:\n  reddit_subreddit:\n    enabled: false",
            "config.yaml:2:3: sources.reddit_subreddit: unknown source;",
        ),
        ("sources:\n  x: {}", "known: youtube_channel_rss, youtube_playlist"),
        (
            "route_profiles:\n  a: {pipelin: x}",
            "config.yaml:2:7: route_profiles.a.pipelin: unknown key; did you mean pip",
        ),
        ("route_profiles:\n  a: {}", "config.yaml:2:3: route_profiles.a.pipeline: this key is required"),
        ("route_profiles:\n  a:", "route_profiles.a: expected a block of keys and values; it has no value"),
        ("csi: hello", "config.yaml:1:6: csi: expected a block of keys and values, not 'hello'"),
        ("web:\n  port:", "config.yaml:2:8: web.port: expected a whole number; it has no value"),
        ("web:\n  port: true", "web.port: expected a number, not true"),
        ("web:\n  port: 1.5", "web.port: expected a whole number, not 1.5"),
        ("web:\n  host: 5", "config.yaml:2:9: web.host: expected text; write it in quotes, not 5"),
        ("features:\n  polling: maybe", "features.polling: expected true or false, not 'maybe'"),
        ("retention:\n  dlq_days: 0", "retention.dlq_days: expected at least 1, not 0"),
        ("retention:\n  dlq_days: 99999", "retention.dlq_days: expected at most 36500, not 99999"),
        ("retention:\n  dlq_days: .nan", "retention.dlq_days: "),
        ("retention:\n  dlq_days: " + "9" * 5000, "retention.dlq_days: "),
        (
            "delivery:\n  canonical_json: utf16",
            "delivery.canonical_json: expected 'auto', 'ascii' or 'utf8', not 'utf16'",
        ),
        ("csi:\n  environment: " + "x" * 100, "csi.environment: expected at most 64 characters"),
        ("csi:\n  database: mysql://h/d", "csi.database: expected a path or postgresql://"),
        (
            "sources:\n  youtube_playlist:\n    priority: [urgent]",
            "priority: expected 'urgent', 'standard' or 'high_volume'",
        ),
        ("sources:\n  youtube_playlist:\n    priority: {a: b}", "priority: expected 'urgent'"),
        (
            "sources:\n  youtube_playlist:\n    first_poll: {last: 9999}",
            "first_poll: expected mark_seen, all, or last: N",
        ),
        (
            "sources:\n  youtube_playlist:\n    poll_interval_seconds: 0.5",
            "expected an interval of 1 second to 7 days, not 0.5",
        ),
        (
            "sources:\n  youtube_playlist:\n    playlists: PLx",
            "playlists: expected a list (lines that begin with -), not 'PLx'",
        ),
        (
            "sources:\n  youtube_playlist:\n    playlists: [PLx]",
            "playlists[0]: expected a block of keys and values, not 'PLx'",
        ),
        (
            "sources:\n  youtube_playlist:\n    playlists: [{id: ../x}]",
            "playlists[0].id: expected text of the form",
        ),
        ("sources: [a]", "config.yaml:1:10: sources: expected a block of keys and values"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, line: str) -> None:
    assert line in message(tmp_path, text)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ua.example.net/x", "expected a URL"),
        ("https:///x", "expected a URL"),
        ("https://h:99999/x", "expected a URL"),
        ("https://[::1/x", "expected a URL"),
        ("'https://h/a b'", "expected a URL"),
        ("file:///etc/passwd", "expected a URL"),
        ("https://user:hunter2@h/x", "user name or password"),
        ("https://user@h/x", "user name or password"),
        ("https://h/x#y", "fragment"),
        ("http://ua.example.net/x", "plain http is only allowed to this machine"),
        ("http://localhost.example.net/x", "plain http is only allowed to this machine"),
        ("http://10.0.0.1/x", "plain http is only allowed to this machine"),
    ],
)
@pytest.mark.parametrize("key", ["delivery.ua_endpoint", "sources.youtube_playlist.api_base_url"])
def test_addresses_that_are_refused(tmp_path: Path, key: str, url: str, words: str) -> None:
    *blocks, last = key.split(".")
    opened = "".join("  " * depth + f"{block}:\n" for depth, block in enumerate(blocks))
    said = message(tmp_path, f"{opened}{'  ' * len(blocks)}{last}: {url}\n")
    assert f"{key}: " in said
    assert words in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "url",
    [
        "https://h/x",
        "http://localhost:8000/x",
        "http://127.9.9.9/x",
        "http://[::1]:80/x",
        "https://h/x?tenant=1",
    ],
)
def test_addresses_that_are_taken(tmp_path: Path, url: str) -> None:
    assert read(tmp_path, f"delivery:\n  ua_endpoint: {url}\n").settings.delivery.ua_endpoint == url


def test_plain_http_elsewhere_needs_the_flag(tmp_path: Path) -> None:
    text = "delivery:\n  ua_endpoint: http://ua.internal/x\n  allow_insecure_http: true\n"
    assert read(tmp_path, text).settings.delivery.ua_endpoint == "http://ua.internal/x"


def test_every_unknown_profile_is_told_beside_other_faults_of_its_source(tmp_path: Path) -> None:
    text = """sources:
  youtube_playlist:
    enabledd: true
    playlists:
      - {id: PL1, route_profile: a}
      - {id: PL2, route_profile: b}
      - {id: PL3}
"""
    assert message(tmp_path, text).splitlines() == [
        "config.yaml:3:5: sources.youtube_playlist.enabledd: unknown key; did you mean enabled?",
        "config.yaml:5:34: sources.youtube_playlist.playlists[0].route_profile: "
        "unknown route profile 'a'; there are none",
        "config.yaml:6:34: sources.youtube_playlist.playlists[1].route_profile: "
        "unknown route profile 'b'; there are none",
    ]


def test_a_watch_twice_is_refused_beside_a_fault_of_another_block(tmp_path: Path) -> None:
    text = "webb: {}\nsources:\n  youtube_playlist:\n    playlists:\n      - id: PL1\n      - id: PL1\n"
    assert message(tmp_path, text).splitlines()[1] == (
        "config.yaml:6:9: sources.youtube_playlist.playlists[1]: watched twice; the first is playlists[0]"
    )


def test_blocks_and_lists_with_nothing_in_them_keep_their_defaults(tmp_path: Path) -> None:
    text = "csi:\nsources:\n  youtube_playlist:\n    playlists:\n  youtube_channel_rss:\nroute_profiles:\n"
    found = read(tmp_path, text).settings
    assert found.csi.instance_id == "csi-vps-01"
    assert found.sources["youtube_playlist"].watches == ()


def test_values_in_many_forms(tmp_path: Path) -> None:
    text = """sources:
  youtube_channel_rss:
    poll_interval_seconds: 10m
    priority: low
    first_poll: {last: 3}
    watchlist:
      - {channel_id: UC1, poll_interval_seconds: "90", first_poll: all}
"""
    source = read(tmp_path, text).settings.sources["youtube_channel_rss"]
    assert (source.poll_interval_seconds, source.priority) == (600, "standard")
    assert source.first_poll == FirstPollLast(last=3)
    assert (source.watches[0].poll_interval_seconds, source.watches[0].first_poll) == (90, "all")


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("{}", ["sources: nothing is watched"]),
        (
            "sources: {youtube_channel_rss: {poll_interval_seconds: 1, watchlist: [{channel_id: UC1}]}}",
            ["sources.youtube_channel_rss.poll_interval_seconds: polls every 1 s; meant for tests"],
        ),
        (
            "sources: {youtube_channel_rss: {watchlist: [{channel_id: UC1, poll_interval_seconds: 1.5}]}}",
            ["sources.youtube_channel_rss.watchlist[0].poll_interval_seconds: polls every 1.5 s; meant for tests"],
        ),
        (
            "sources: {youtube_playlist: {playlists: [{id: PL1}], "
            "adaptive_polling: {active_interval_seconds: 60, idle_interval_seconds: 30}}}",
            ["sources.youtube_playlist.adaptive_polling: the active interval is longer than the idle one"],
        ),
        (
            "sources: {youtube_channel_rss: {watchlist: [{channel_id: UC1}]}, "
            "youtube_playlist: {enabled: false, poll_interval_seconds: 1}}",
            [],
        ),
    ],
)
def test_warnings(tmp_path: Path, text: str, warnings: list[str]) -> None:
    assert list(read(tmp_path, text).warnings) == warnings


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("given", "named", "default"):
        (tmp_path / name).write_text(f"csi: {{instance_id: {name}}}")
    monkeypatch.setattr(loader, "DEFAULT_PATH", tmp_path / "default")
    named = {"CSI_CONFIG_PATH": str(tmp_path / "named")}

    def instance(path: Path | None, env: dict[str, str]) -> str:
        return load(path, env=env, sources=SOURCES).csi.instance_id

    assert instance(tmp_path / "given", named) == "given"
    assert instance(None, named) == "named"
    assert instance(None, {"CSI_CONFIG_PATH": ""}) == "default"


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.yaml: there is no .* copy config/config.example.yaml") as error:
        load(tmp_path / "nowhere.yaml", env={}, sources=SOURCES)
    assert "--config PATH" in str(error.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    assert message(tmp_path, b"csi: {}\nx: \xff\n") == "config.yaml:2: not YAML: the file is not UTF-8 text"
    assert "larger than 2,048 KiB" in message(tmp_path, b"# " + b"x" * 3_000_000)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, env={}, sources=SOURCES)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Path("a\0b"), env={}, sources=SOURCES)


def test_a_byte_order_mark_and_windows_lines_do_not_matter(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbfcsi:\r\n  instance_id: x\r\n").settings.csi.instance_id == "x"


def test_a_flood_of_problems_is_cut(tmp_path: Path) -> None:
    lines = message(tmp_path, "".join(f"key{number}: 1\n" for number in range(500))).splitlines()
    assert len(lines) == loader.MAX_PROBLEMS + 1
    assert lines[-1] == "config.yaml: and 400 more problems"


def test_long_and_strange_things_are_not_echoed(tmp_path: Path) -> None:
    said = message(tmp_path, f'web:\n  port: "{"y" * 5000}"\n"{"k" * 5000}\\e[31m": 1\n')
    assert len(said) < 500
    assert "\x1b" not in said


def test_hundreds_of_channels_load_quickly(tmp_path: Path) -> None:
    rows = "".join(f"      - {{channel_id: UC{number:022}, creator_name: C{number}}}\n" for number in range(2000))
    found = read(tmp_path, f"sources:\n  youtube_channel_rss:\n    watchlist:\n{rows}").settings
    assert len(found.sources["youtube_channel_rss"].watches) == 2000


PIECES = [
    "csi",
    "sources",
    "delivery",
    "web",
    ":",
    " ",
    "\n",
    "\n  ",
    "- ",
    "&a ",
    "*a",
    "!!x ",
    "${A}",
    "${",
    "[",
    "]",
]
PIECES += [
    "{",
    "}",
    ",",
    "'",
    '"',
    "|",
    ">",
    "#",
    "%",
    "@",
    "\t",
    "---",
    "\x00",
    "\ud800",
    "1",
    "null",
    "youtube_playlist",
]
yamlish = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(st.one_of(st.binary(), st.text().map(lambda text: text.encode(errors="replace")), st.just(b"\xff")))
def test_no_bytes_give_anything_but_a_config_error(tmp_path: Path, content: bytes) -> None:
    with suppress(ConfigError):
        read(tmp_path, content)


@quick
@given(yamlish)
def test_no_yaml_gives_anything_but_a_config_error(tmp_path: Path, text: str) -> None:
    with suppress(ConfigError):
        read(tmp_path, text.encode(errors="surrogatepass"), {"A": "x: {"})


def _leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(leaf for key, inner in items for leaf in _leaves(inner, (*path, key)))]


PRD = yaml.safe_load((DATA / "prd.yaml").read_text())
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["${A}", "x" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@quick
@given(st.sampled_from([path for path in _leaves(PRD) if path]), anything)
def test_no_value_in_any_place_gives_anything_but_a_config_error(
    tmp_path: Path, path: tuple[str | int, ...], value: object
) -> None:
    data = json.loads(json.dumps(PRD))
    block = data
    for part in path[:-1]:
        block = block[part]
    block[path[-1]] = value
    with suppress(ConfigError):
        read(tmp_path, yaml.safe_dump(data), {"A": "1"})


@quick
@given(st.dictionaries(st.sampled_from([*OVERRIDES, *SECRETS, *SECRET_KEYS.values(), "CSI_DB_PATH"]), st.text()))
def test_no_environment_gives_anything_but_a_config_error(tmp_path: Path, env: dict[str, str]) -> None:
    with suppress(ConfigError):
        read(tmp_path, (DATA / "prd.yaml").read_text(), env)


def test_the_files_model_has_a_block_for_each_source() -> None:
    assert list(file_model(SOURCES)().sources.model_fields_set) == []
    assert set(type(file_model(SOURCES)().sources).model_fields) == set(SOURCES)
