"""Property tests: no environment and no value in the file gives anything but a configuration error."""

import json
from contextlib import suppress
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csi.adapters.youtube_channel_rss import ChannelSettings
from csi.adapters.youtube_playlist import PlaylistSettings
from csi.config.loader import LoadedConfig, read_config
from csi.config.variables import OVERRIDES, SECRET_KEYS, SECRETS
from csi.errors import ConfigError

DATA = Path(__file__).parents[1] / "data" / "config"


SOURCES = {"youtube_playlist": PlaylistSettings, "youtube_channel_rss": ChannelSettings}


def read(folder: Path, text: str | bytes, env: dict[str, str] | None = None) -> LoadedConfig:
    file = folder / "config.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_config(file, env=env or {}, sources=SOURCES)


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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
