"""ops/install.sh for real, below a root of its own: it installs, upgrades, goes back, and keeps what was edited."""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from csi import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
READY = "CSI_UA_ENDPOINT=http://127.0.0.1:9/ingest\nCSI_UA_SHARED_SECRET=a-secret-of-the-test\nYOUTUBE_API_KEY=key-of-test\n"


class Site:
    """A checkout, and a root below which it is installed."""

    def __init__(self, home: Path) -> None:
        self.checkout, self.root = home / "checkout", home / "root"
        self.checkout.mkdir()
        for name in ("csi", "tasks", "config", "ops"):
            shutil.copytree(ROOT / name, self.checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("huey_config.py", "pyproject.toml", "requirements.lock"):
            shutil.copy(ROOT / name, self.checkout)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*options)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *options: str) -> subprocess.Popen[str]:
        line = ["bash", self.checkout / "ops/install.sh", "--root", self.root, "--python", sys.executable]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CSI_", "YOUTUBE_"))}
        venv = Path(sys.executable).parent.parent
        return subprocess.Popen(
            [*line, "--venv", venv, *options],
            env=kept | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def install(self, *options: str) -> str:
        done = self.run(*options)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def become(self, version: str) -> None:
        file = self.checkout / "csi/__init__.py"
        file.write_text(file.read_text().replace(__version__, version))

    @property
    def current(self) -> str:
        return os.readlink(self.root / "opt/csi/current").removeprefix("releases/").partition("-")[0]

    def tree(self) -> dict[str, tuple[int, bytes]]:
        files = [path for path in self.root.rglob("*") if path.is_file() and "venv" not in path.parts]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    if shutil.which("bash") is None:
        pytest.skip("the installer needs bash")
    return Site(tmp_path)


def test_the_first_install_and_the_second_that_changes_nothing(site: Site) -> None:
    told = site.install()
    assert "not started: edit /etc/csi/config.yaml and /etc/csi/env" in told
    assert site.current == __version__
    modes = {"var/lib/csi": 0o700, "var/backups/csi": 0o700, "etc/csi": 0o750, "etc/csi/env": 0o640}
    assert {name: (site.root / name).stat().st_mode & 0o777 for name in modes} == modes
    before = site.tree()
    assert "is already installed" in site.install()
    assert site.tree() == before


def test_what_must_survive_a_reboot_is_enabled(site: Site) -> None:
    if shutil.which("systemctl") is None:
        pytest.skip("needs systemctl (Debian: systemd)")
    site.install()
    units = site.root / "etc/systemd/system"
    wanted = {path.name for folder in units.glob("*.wants") for path in folder.iterdir()}
    assert wanted == {
        *("csi.target", "csi-worker.service", "csi-web.service"),
        *("csi-backup.timer", "csi-prune.timer"),
    }
    assert os.readlink(units / "csi-ingester.service") == "/etc/systemd/system/csi-worker.service"


def test_what_the_operator_edited_stays(site: Site) -> None:
    site.install()
    (site.root / "etc/csi/env").write_text(READY)
    (site.root / "etc/csi/config.yaml").write_text("csi: {instance_id: mine}\n")
    site.become("9.0.0")
    assert "ready; start it with" in site.install()
    assert (site.root / "etc/csi/env").read_text() == READY
    assert "mine" in (site.root / "etc/csi/config.yaml").read_text()


def test_an_upgrade_saves_the_database_and_can_be_taken_back(site: Site) -> None:
    site.install()
    make_database(site)
    site.become("9.0.0")
    assert "saved the database as /var/backups/csi/before-9.0.0-" in site.install()
    assert site.current == "9.0.0"
    site.install("--rollback")
    assert site.current == __version__
    # Forth again, and back once more, now with a database that the version before cannot read.
    site.install("--rollback")
    with sqlite3.connect(site.root / "var/lib/csi/csi.db") as opened:
        opened.execute("INSERT INTO schema_migration (name, applied) VALUES ('0999_future', '2030-01-01')")
    opened.close()
    done = site.run("--rollback")
    assert (done.returncode, "/var/backups/csi/before-9.0.0-" in done.stdout) == (1, True)


def make_database(site: Site) -> None:
    (site.root / "etc/csi/env").write_text(READY)
    env = os.environ | {"CSI_STATE_DIR": str(site.root / "var/lib/csi"), "PYTHONPATH": str(ROOT)}
    env["CSI_CONFIG_PATH"] = str(site.root / "etc/csi/config.yaml")
    line = [sys.executable, "-m", "csi.cli.main", "db", "migrate"]
    subprocess.run(line, env=env | {"CSI_UA_ENDPOINT": "http://127.0.0.1:9/"}, check=True, capture_output=True)


def upgrade_until(site: Site, words: str) -> subprocess.Popen[str]:
    """An upgrade to 9.0.0 that has just printed these words."""
    site.install()
    make_database(site)
    site.become("9.0.0")
    process = site.start()
    assert process.stdout is not None
    while words not in (line := process.stdout.readline()):
        assert line, "it ended before"
    return process


def test_an_upgrade_goes_on_when_its_terminal_is_gone(site: Site) -> None:
    process = upgrade_until(site, "saved the database")
    assert process.stdout is not None
    process.stdout.close()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    assert process.wait(60) == 0
    assert site.current == "9.0.0"
    before = site.tree()
    site.install()
    assert site.tree() == before, "nothing was left to do"


@pytest.mark.parametrize("words", ["built 9.0.0", "saved the database", "current is"])
def test_an_upgrade_that_was_killed_is_completed_by_the_next_run(site: Site, words: str) -> None:
    process = upgrade_until(site, words)
    process.kill()
    process.wait(60)
    assert "ready; start it with" in site.install()
    assert site.current == "9.0.0"
    assert os.readlink(site.root / "opt/csi/previous").startswith(f"releases/{__version__}-")
    site.install("--rollback")
    assert site.current == __version__


def test_old_versions_are_removed_but_not_the_one_before(site: Site) -> None:
    for version in ("2.0.0", "3.0.0", "4.0.0"):
        site.install("--keep", "1")
        site.checkout.joinpath("csi/__init__.py").write_text(f'__version__ = "{version}"\n')
    site.install("--keep", "1")
    left = {path.name.partition("-")[0] for path in (site.root / "opt/csi/releases").iterdir()}
    assert left == {"3.0.0", "4.0.0"}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--rollback",), 1, "no previous version"),
        (("--sideways",), 2, "unknown option"),
        (("--keep", "few"), 2, "--keep needs a number"),
        (("--prefix", "here"), 2, "absolute path"),
        (("--venv", "/nowhere"), 1, "not a virtual environment"),
        (("--python", "/bin/false"), 1, "Python 3.11"),
        (("--venv",), 2, "needs a value"),
        (("--purge",), 2, "belongs to --uninstall"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_wrong_is_said_in_a_sentence(site: Site, options: tuple[str, ...], code: int, words: str) -> None:
    done = site.run(*options)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


def test_uninstall_leaves_what_the_operator_wrote_and_purge_removes_it(site: Site) -> None:
    site.install("--prefix", "/opt/csi-ingester")
    assert (site.root / "usr/local/bin/csi").stat().st_mode & 0o111
    assert "kept: /etc/csi" in site.install("--uninstall", "--prefix", "/opt/csi-ingester")
    left = {path.relative_to(site.root).parts[:2] for path in site.root.rglob("*") if path.is_file()}
    assert left == {("etc", "csi")}
    refused = site.run("--uninstall", "--purge")
    assert (refused.returncode, "pass --yes" in refused.stderr) == (2, True)
    site.install("--uninstall", "--purge", "--yes")
    assert not [path for path in site.root.rglob("*") if path.is_file()]


def test_a_csi_of_another_installation_on_the_path_stays(site: Site) -> None:
    command = site.root / "usr/local/bin/csi"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    assert "is not ours and stays" in site.install()
    assert command.read_text() == "#!/bin/sh\n"


def test_a_half_finished_installation_is_completed(site: Site) -> None:
    site.install()
    site.become("9.0.0")
    assert site.run("--python", "/bin/false").returncode == 1
    half = site.root / "opt/csi/releases"
    (release,) = half.iterdir()
    (half / "9.0.0-half" / "venv").mkdir(parents=True)
    (release / "complete").unlink()
    assert "built 9.0.0-" in site.install()
    assert site.current == "9.0.0"


def test_two_installers_at_once_do_not_mix(site: Site) -> None:
    site.install()
    with (site.root / "opt/csi/.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = site.run()
    assert (done.returncode, "another installation runs" in done.stderr) == (1, True)


def test_another_prefix_is_in_the_units(site: Site) -> None:
    site.install("--prefix", "/srv/csi")
    unit = (site.root / "etc/systemd/system/csi-worker.service").read_text()
    assert "ExecStart=/srv/csi/current/venv/bin/huey_consumer" in unit
    assert "/opt/csi" not in unit
