"""Every YAML sample in the documentation loads. Samples with patterns start the process that compiles them."""

from pathlib import Path

import pytest

from csi.adapters import registry
from csi.config.loader import read_config
from csi.processing import config as processing_config
from tests.fakes.pages import Block, every

ENV = {"CSI_UA_ENDPOINT": "https://ua.example.net/ingest", "CSI_UA_SHARED_SECRET": "csi-test-secret"}
BROKEN = "# broken on purpose"


@pytest.mark.parametrize("block", every("yaml"), ids=lambda block: block.place)
def test_every_yaml_sample_loads(block: Block, tmp_path: Path):
    if block.first_line == BROKEN:
        return
    file = tmp_path / "config.yaml"
    file.write_text(block.text)
    if block.first_line == "# processing.yaml":
        processing_config.load(file, env={})
        return
    read_config(file, env=ENV, sources=registry.settings_models())
