"""What sources may say in the config, and what the runtime makes of it: secrets, one budget for all, spare units."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from csi.errors import SourceError
from csi.net import Net
from csi.runtime import Runtime, load_settings
from csi.store import api_units


def settings_of(tmp_path: Path, env: dict[str, str] | None = None, **sources: Any):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"csi": {"state_dir": str(tmp_path)}, "sources": sources}))
    return load_settings(config, env or {})


def test_both_sources_book_in_one_ledger_and_optional_work_leaves_the_buffer_alone(tmp_path, sqlite_store, clock):
    rule = {"quota_limit": 10, "adaptive_polling": {"min_quota_buffer": 4}}
    settings = settings_of(tmp_path, youtube_playlist=rule, youtube_channel_rss={})
    runtime = Runtime(settings, Net(), now=clock)
    lists, channels = (runtime.adapter(name).tools for name in ("youtube_playlist", "youtube_channel_rss"))
    lists.charge(5)
    assert channels.spare(1)
    channels.charge(1)
    assert not lists.spare(1)
    lists.charge(4)
    assert api_units.used(clock()) == 10
    with pytest.raises(SourceError) as caught:
        channels.charge(1)
    assert caught.value.kind == "budget"
