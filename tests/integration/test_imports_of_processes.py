"""What a process loads: not what nobody here uses, and everything else as ever."""

import subprocess
import sys
from pathlib import Path

import pytest

from csi.import_blocker import without

ROOT = Path(__file__).resolve().parents[2]


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_worker_and_sidecar_load_neither_a_foreign_command_line_nor_the_slow_parser():
    loaded = loaded_after("import csi.main, csi.pipeline.poll")
    assert "httpx" in loaded
    assert not loaded & {"httpx._main", "pygments", "feedparser", "trio"}


def test_what_is_hidden_during_an_import_can_be_imported_later():
    with without("wave"), pytest.raises(ImportError):
        import wave
    import wave

    assert wave.open


def test_what_was_loaded_before_stays():
    import json

    with without("json"):
        assert sys.modules["json"] is json
    assert sys.modules["json"] is json
