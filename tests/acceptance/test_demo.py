"""`csi demo` as a user runs it: real processes, offline, without a key."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

LIMIT = 120


def start(*options: str, home: Path) -> subprocess.Popen[str]:
    """Start the command with its own temporary directory, so that the test sees the files that remain."""
    env = {**os.environ, "TMPDIR": str(home), "CSI_UA_ENDPOINT": "https://never.invalid/"}
    return subprocess.Popen(
        [sys.executable, "-m", "csi.cli.main", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=LIMIT)
    finally:
        process.kill()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def check_clean(summary: dict[str, Any], home: Path) -> None:
    assert (summary["lost"], summary["extra"], summary["unexpected"], summary["pending"]) == (0, 0, 0, 0)
    assert summary["served"] == summary["events"] == summary["delivered"] > 0
    assert set(summary["pids"]) == {"simulator", "receiver", "worker", "sidecar"}
    assert not any(is_alive(pid) for pid in summary["pids"].values())
    assert list(home.iterdir()) == []


def test_eight_seconds_lose_nothing(home: Path) -> None:
    out, err = finish(process := start("--seconds", "8", "--json", home=home))
    assert process.returncode == 0, err
    summary = json.loads(out)
    check_clean(summary, home)
    assert summary["delivered"] >= 8 + 8 * 4 / 2
    assert summary["p95_ms"] < 1500
    assert "dashboard, by a link that works once: http://127.0.0.1:" in err


def test_with_processing_every_video_ends_in_a_summary_is_skipped_or_waits_for_its_captions(home: Path) -> None:
    out, err = finish(process := start("--processing", "--seconds", "2", "--rate", "3", "--json", home=home))
    assert process.returncode == 0, err
    summary = json.loads(out)
    processed = summary["processing"]
    assert (summary["lost"], processed["unfinished"], processed["dead_letters"]) == (0, 0, 0)
    assert processed["videos"] == processed["summarized"] + processed["skipped"] + processed["waiting"] > 8
    assert processed["cost_usd"] == "0.0000"
    assert set(summary["pids"]) == {"simulator", "receiver", "processing", "worker", "sidecar"}
    assert not any(is_alive(pid) for pid in summary["pids"].values())
    assert list(home.iterdir()) == []


def test_ctrl_c_after_the_first_delivery_ends_it_cleanly(home: Path) -> None:
    """The signal goes to the whole process group, as a terminal sends it."""
    process = start(home=home)
    assert process.stdout is not None
    seen = next((line for line in process.stdout if " delivered " in line), None)
    assert seen is not None
    os.killpg(process.pid, signal.SIGINT)
    out, err = finish(process)
    assert process.returncode == 0, err
    assert "Every served item was delivered, each exactly once." in out
    assert list(home.iterdir()) == []


@pytest.mark.faults
def test_faults_delay_items_and_lose_none(home: Path) -> None:
    options = ("--seconds", "6", "--json", "--rate", "2", "--faults", "any:500@2-5")
    out, err = finish(process := start(*options, home=home))
    assert process.returncode == 0, err
    check_clean(json.loads(out), home)


def test_sigterm_stops_every_process(home: Path) -> None:
    process = start("--json", "--keep", str(home / "kept"), home=home)
    assert process.stderr is not None
    assert any("dashboard, by a link" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert process.returncode == 143
    config = (home / "kept" / "config.yaml").read_text()
    marker = str(home / "kept")
    assert marker in config
    assert not _processes_with(marker)


def _processes_with(marker: str) -> list[str]:
    """Command lines and environments that mention the state directory (Linux only; elsewhere nothing is found)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in text and int(folder.name) != os.getpid():
            found.append(text[:200].decode(errors="replace"))
    return found
