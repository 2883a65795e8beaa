"""The units: what systemd itself says of them, and that they run what the documentation says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from csi.errors import ConfigError, MissingSetting

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "ops" / "systemd"
SERVICES = sorted(FOLDER.glob("*.service"))
WORST = 2.0

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: apt-get install systemd)"
)


def settings(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def test_all_are_there():
    assert {path.name for path in FOLDER.iterdir()} == {
        *("csi.target", "csi-worker.service", "csi-web.service"),
        *("csi-backup.service", "csi-backup.timer", "csi-backup-failed.service"),
        *("csi-prune.service", "csi-prune.timer"),
        *("csi-config.service", "csi-receiver.service", "csi-processing.service"),
    }


@needs_systemd
@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_the_exposure_is_low(path):
    line = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert score, done.stdout + done.stderr
    assert float(score[1]) <= WORST


@needs_systemd
def test_systemd_finds_nothing_to_complain_of(tmp_path):
    """With commands that exist, since systemd looks for them."""
    commands = tmp_path / "venv" / "bin"
    commands.mkdir(parents=True)
    for name in ("csi", "python", "huey_consumer"):
        (commands / name).symlink_to("/bin/true")
    units = tmp_path / "units"
    units.mkdir()
    for path in FOLDER.iterdir():
        (units / path.name).write_text(path.read_text().replace("/opt/csi/current", str(tmp_path)))
    line = ["systemd-analyze", "verify", *map(str, sorted(units.iterdir()))]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "csi" in line]
    assert (done.returncode, ours) == (0, [])


def test_they_run_what_the_procfile_runs():
    commands = dict(re.findall(r"^(\w+): (.*)$", (ROOT / "Procfile").read_text(), re.MULTILINE))
    for name in ("worker", "web", "receiver", "processing"):
        (started,) = settings(FOLDER / f"csi-{name}.service")["ExecStart"]
        assert started.removeprefix("/opt/csi/current/venv/bin/") == commands[name]


def test_the_worker_stops_gracefully_reloads_and_is_watched():
    worker = settings(FOLDER / "csi-worker.service")
    assert worker["Type"] == ["notify"]
    assert worker["KillSignal"] == ["SIGTERM"]
    assert int(worker["TimeoutStopSec"][0]) > 25, "longer than the consumer's own shutdown timeout"
    assert int(worker["WatchdogSec"][0]) >= 60
    check, signal = worker["ExecReload"]
    assert check.endswith("/csi config check --start"), "a bad configuration fails the reload"
    assert signal == "/bin/kill -HUP $MAINPID"
    assert set(worker["RestartPreventExitStatus"][0].split()) == {
        str(ConfigError.exit_code),
        str(MissingSetting.exit_code),
    }
    assert (worker["Restart"], worker["StartLimitIntervalSec"]) == (["always"], ["0"])


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_no_secret_is_in_a_unit(path):
    found = settings(path)
    assert found["EnvironmentFile"] == ["/etc/csi/env"]
    assert not any("SECRET" in value or "KEY" in value for value in found.get("Environment", []))


@pytest.mark.parametrize("name", ["csi-backup", "csi-prune"])
def test_a_timer_has_its_service_and_catches_up(name):
    timer = settings(FOLDER / f"{name}.timer")
    assert (timer["Persistent"], timer["WantedBy"]) == (["yes"], ["timers.target"])
    assert settings(FOLDER / f"{name}.service")["Type"] == ["oneshot"]


def test_a_failed_backup_is_recorded_also_when_it_could_not_record_itself():
    assert settings(FOLDER / "csi-backup.service")["OnFailure"] == ["csi-backup-failed.service"]
    (command,) = settings(FOLDER / "csi-backup-failed.service")["ExecStart"]
    assert command.startswith("/opt/csi/current/venv/bin/csi db backup-failed ")


def test_the_env_example_is_the_one_of_the_configuration():
    assert (ROOT / "ops/csi-ingester.env.example").read_text() == (ROOT / "config/env.example").read_text()
