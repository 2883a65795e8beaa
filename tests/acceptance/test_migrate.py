"""ops/migrate/migrate_to_csi.sh with a service manager that only writes down what it was told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.processes import installation

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "ops/migrate/migrate_to_csi.sh"
OLD = "universal-agent-youtube-playlist-poller"


@pytest.fixture
def box(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("the script needs bash")
    with installation(tmp_path, first_poll="mark_seen") as built:
        tools = tmp_path / "bin"
        tools.mkdir()
        write(tools / "systemctl", f'[ "$1" = cat ] || echo "$*" >> {tmp_path}/systemctl.log')
        write(tools / "csi", f'exec {sys.executable} -m csi.cli.main "$@"')
        write(tools / "journalctl", f"cat {tmp_path}/journal")
        assert built.csi("db", "migrate").returncode == 0
        assert built.csi("sources", "poll", built.yt.playlists[0]).returncode == 0
        yield built


def write(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def migrate(box, *arguments):
    env = box.env | {"PATH": f"{box.home / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(["bash", SCRIPT, *arguments], env=env, capture_output=True, text=True, timeout=60)


def told(box):
    log = box.home / "systemctl.log"
    return log.read_text().splitlines() if log.exists() else []


def test_from_the_parallel_run_over_the_cut_over_and_back(box):
    video = box.yt.add(box.yt.playlists[0], "Seen by the old one")
    (box.home / "journal").write_text(f"2026-02-22T12:00:00+0000 host poller[1]: sent video_id={video}\n")
    ready = migrate(box, "check")
    assert ready.returncode == 0, ready.stdout + ready.stderr
    assert migrate(box, "parallel").returncode == 0

    missed = migrate(box, "compare", "--since", "9999d")
    assert (missed.returncode, video in missed.stdout) == (1, True), missed.stdout + missed.stderr
    (box.home / "ids.txt").write_text(f"{video}\n")
    rehearsal = migrate(box, "cutover", "--dry-run", "--log", str(box.home / "ids.txt"))
    assert rehearsal.returncode == 0, rehearsal.stderr
    assert box.rows("SELECT count(*) FROM dedupe_keys WHERE reason = 'taken_over'") == [(0,)]
    assert migrate(box, "cutover").returncode == 2, "stdin is no terminal"

    done = migrate(box, "cutover", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    box.csi("sources", "poll", box.yt.playlists[0])
    assert box.rows("SELECT count(*) FROM events") == [(0,)]
    assert box.rows("SELECT count(*) FROM dedupe_keys WHERE reason = 'taken_over'") == [(2,)]
    assert migrate(box, "rollback", "--yes").returncode == 0
    assert [line for line in told(box) if not line.startswith(("is-enabled", "cat"))] == [
        "start csi.target",
        f"stop {OLD}.timer",
        f"stop {OLD}.service",
        f"disable {OLD}.timer",
        "enable csi.target csi-worker.service csi-web.service",
        "start csi.target",
        "stop csi.target csi-worker.service csi-web.service",
        "disable csi.target csi-worker.service csi-web.service",
        f"enable {OLD}.timer",
        f"start {OLD}.timer",
    ]


def test_a_take_over_that_would_fail_leaves_the_old_poller_running(box):
    (box.home / "ids.txt").write_text("dQw4w9WgXcQ\n")
    (box.home / "config.yaml").write_text("delivry: {}\n")
    done = migrate(box, "cutover", "--yes", "--log", str(box.home / "ids.txt"))
    assert done.returncode == 1
    assert "the old poller was not stopped" in done.stderr
    assert not [line for line in told(box) if line.startswith(("stop", "disable"))]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "usage:"),
        (("sideways",), 2, "unknown argument"),
        (("compare", "--log", "/nowhere"), 1, "cannot be read"),
        (("compare", "--log"), 2, "needs a value"),
    ],
    ids=["nothing", "unknown", "no log", "no value"],
)
def test_a_wrong_call_changes_nothing(tmp_path, arguments, code, words):
    done = subprocess.run(["bash", SCRIPT, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, words in done.stderr) == (code, True)
