"""The example files hold every key and every variable, and are good as they stand."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from csi.adapters import registry
from csi.config.delivery_settings import DestinationSettings, SecretHeader
from csi.config.loader import LoadedConfig, file_model, read_config, require_delivery
from csi.config.problems import models_in
from csi.config.settings import ConfigFile, HostSettings, RouteProfile
from csi.config.variables import OVERRIDES, SECRET_KEYS, SECRETS, SOURCE_SECRETS

CONFIG = Path(__file__).parents[2] / "config"
ENV = {
    "CSI_UA_ENDPOINT": "https://ua.example.net/api/v1/signals/ingest",
    "CSI_UA_SHARED_SECRET": "csi-test-secret",
    "YOUTUBE_API_KEY": "AIza-test-key",
}


@pytest.fixture(scope="module")
def example() -> LoadedConfig:
    return read_config(CONFIG / "config.example.yaml", env=ENV, sources=registry.settings_models())


def test_the_example_is_ready_to_deliver(example: LoadedConfig) -> None:
    require_delivery(example.settings)
    assert example.warnings == ("sources: nothing is watched",)
    assert example.faults == ()


def test_the_example_shows_the_defaults(example: LoadedConfig) -> None:
    bare = file_model(registry.settings_models())()
    for name in set(ConfigFile.model_fields) - {"route_profiles", "delivery"}:
        assert getattr(example.settings, name) == getattr(bare, name), name
    ours = example.settings.delivery.model_dump(exclude={"ua_endpoint", "shared_secret"})
    assert ours == bare.delivery.model_dump(exclude={"ua_endpoint", "shared_secret"})
    for name, model in registry.settings_models().items():
        source = example.settings.sources[name]
        assert source.model_copy(update={str(source.watch_key): ()}) == model()


def test_every_key_is_in_the_example() -> None:
    missing = list(_absent(file_model(registry.settings_models()), yaml.safe_load(_with_examples()), "config"))
    assert missing == []


def test_the_commented_destination_and_window_would_load(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(_with_examples())
    env = ENV | {"CSI_ARCHIVE_SECRET": "archive-secret"}
    loaded = read_config(tmp_path / "config.yaml", env=env, sources=registry.settings_models())
    require_delivery(loaded.settings)
    assert list(loaded.settings.delivery.destinations) == ["archive"]
    assert [one.days for one in loaded.settings.notify.windows] == [("sat", "sun")]


def _with_examples() -> str:
    """The example with its commented destination, feed and maintenance window switched on."""
    text = (CONFIG / "config.example.yaml").read_text().replace("destinations: {}", "destinations:")
    text = text.replace("windows: []", "windows:").replace("feeds: []", "feeds:")
    text = text.replace("playlists: []", "playlists:").replace("watchlist: []", "watchlist:")
    text = text.replace("subreddits: []", "subreddits:").replace("  hosts: {}", "  hosts:")
    return re.sub(r"(?m)^  #   ", "    ", text)


def test_every_line_of_the_example_with_a_value_says_what_it_is() -> None:
    lines = (CONFIG / "config.example.yaml").read_text().splitlines()
    silent = [line for line in lines if re.match(r"\s+(- )?\w+: \S", line) and "#" not in line]
    assert silent == []


def test_every_variable_is_in_the_example_with_a_comment() -> None:
    lines = (CONFIG / "env.example").read_text().splitlines()
    named = {match[1]: lines[at - 1] for at, line in enumerate(lines) if (match := re.match(r"#?([A-Z_]+)=", line))}
    known = {*OVERRIDES, *SECRETS, *SECRET_KEYS.values(), "CSI_DB_PATH", "CSI_CONFIG_PATH", *SOURCE_SECRETS}
    assert set(named) == known
    assert all(comment.startswith("# ") for comment in named.values())


def _absent(model: type[BaseModel], data: dict[str, Any], path: str) -> Iterator[str]:
    """Fields of the model, and of the models inside it, that the example does not have."""
    for name, field in model.model_fields.items():
        inner = next(models_in(field.annotation), None)
        if name not in data:
            yield f"{path}.{name}"
        elif inner is not None and isinstance(sample := _sample(data[name], inner), dict):
            yield from _absent(inner, sample, f"{path}.{name}")


def _sample(value: Any, model: type[BaseModel]) -> Any:
    """The first of a list, or of named blocks; a block as it is."""
    if isinstance(value, list):
        return value[0]
    if model in (RouteProfile, DestinationSettings, HostSettings, SecretHeader):
        return next(one for one in value.values() if isinstance(one, dict))
    return value
