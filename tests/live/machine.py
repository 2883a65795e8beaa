"""A machine with a real systemd, made of this one: its files under an overlay in memory, in a container of its own."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.fakes.pages import ROOT
from tests.rigs.processes import wait_until

NEEDED = {"systemd-nspawn": "systemd-container", "ip": "iproute2", "systemctl": "systemd", "runuser": "util-linux"}
SECRET = "live-'\"$x`-secret-1"
"""With every character that shells, systemd and Docker treat in ways of their own."""
SECURE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""As Debian's sudoers have it."""
RECEIVER, SIMULATOR = 8090, 8100


PYTHON = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()), "python3")
"""An interpreter that every user may run; the one of these tests may be in root's home."""


def why_not() -> str | None:
    """Why no machine can be made here. None: one can."""
    if os.geteuid() != 0:
        return "needs root"
    can = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"
    if subprocess.run([PYTHON, "-c", can], capture_output=True).returncode != 0:
        return f"{PYTHON} is older than 3.11 or cannot make virtual environments (Debian: apt-get install python3-venv)"
    missing = [package for tool, package in NEEDED.items() if shutil.which(tool) is None]
    return f"needs {', '.join(missing)} (Debian: apt-get install)" if missing else None


class Machine:
    def __init__(self, work: Path, name: str) -> None:
        self.work, self.name, self.root = work, name, work / "disk" / "root"
        self._container: subprocess.Popen[bytes] | None = None
        self._beside: list[subprocess.Popen[bytes]] = []

    # ── the container ───────────────────────────────────────────────────────────────────────────────────

    def create(self) -> None:
        os.umask(0o022)  # importing the worker has set a stricter one, and other users must be able to read /
        disk = self.work / "disk"
        disk.mkdir()
        _run("mount", "-t", "tmpfs", "-o", "size=3g", "tmpfs", disk)
        for name in ("upper", "work", "root"):
            (disk / name).mkdir()
        options = f"lowerdir=/,upperdir={disk}/upper,workdir={disk}/work"
        _run("mount", "-t", "overlay", "overlay", "-o", options, self.root)
        # Nothing of this machine's own services and settings runs there.
        hidden = (
            "etc/systemd/system",
            "etc/systemd/system.conf.d",
            "var/log/journal",
            "etc/pip.conf",
            "etc/machine-id",
        )
        for path in hidden:
            target = self.root / path
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        (self.root / "etc/systemd/system").mkdir(parents=True)
        (self.root / "var/log/journal").mkdir(parents=True, exist_ok=True)
        (self.root / "etc/hostname").write_text("csihost\n")
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost csihost\n")
        # Without an id systemd takes it for a first boot, and enables every unit of this machine.
        (self.root / "etc/machine-id").write_text(f"{secrets.token_hex(16)}\n")
        pip = "[global]\nno-index = true\nno-compile = true\nfind-links = /opt/wheels\n"
        (self.root / "etc/pip.conf").write_text(pip)
        _run("ip", "netns", "add", self.name)
        _run("ip", "-n", self.name, "link", "set", "lo", "up")  # loopback only; it outlives reboots

    def boot(self) -> None:
        line = ["systemd-nspawn", "-q", "-b", "-D", self.root, "--machine", self.name]
        line += [
            f"--network-namespace-path=/run/netns/{self.name}",
            "--keep-unit",
            "--register=no",
            "--resolv-conf=off",
        ]
        line += ["--link-journal=no", "--console=pipe", f"--bind-ro={self.work / 'wheels'}:/opt/wheels"]
        with (self.work / "console").open("ab") as console:
            self._container = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        states = ("running", "degraded")
        assert wait_until(lambda: self.run("systemctl", "is-system-running").stdout.strip() in states, 60), (
            self.console()
        )

    def power_off(self) -> None:
        assert self._container is not None
        self.run("systemctl", "poweroff")
        with suppress(subprocess.TimeoutExpired):
            self._container.wait(60)
        if self._container.poll() is None:
            self._container.kill()
            self._container.wait()

    def remove(self) -> None:
        for process in self._beside:
            process.kill()
            process.wait()
        if self._container is not None and self._container.poll() is None:
            self.power_off()
        for mount in (self.root, self.work / "disk"):
            subprocess.run(["umount", "-l", mount], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)

    def console(self) -> str:
        return (self.work / "console").read_text("utf-8", "replace")[-3000:]

    # ── commands in it ──────────────────────────────────────────────────────────────────────────────────

    def run(self, *line: object, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """As `sudo` runs a command: as root, with a PATH of its own and no variable of the caller."""
        env = ["env", "-i", "HOME=/root", "LANG=C.UTF-8", "SYSTEMD_PAGER=", f"PATH={SECURE_PATH}"]
        enter = ["nsenter", "-t", str(self._init()), "-m", "-u", "-i", "-n", "-p", "-C"]
        return subprocess.run(
            [*enter, *env, *map(str, line)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )

    def ok(self, *line: object, timeout: float = 180) -> str:
        done = self.run(*line, timeout=timeout)
        assert done.returncode == 0, f"{line}: {done.stdout[-3000:]}{done.stderr[-3000:]}\n{self.log()}"
        return done.stdout

    def sh(self, script: str) -> str:
        return self.ok("bash", "-c", script)

    def csi(self, *line: object) -> str:
        """The command that the installer puts on the PATH of a login."""
        return self.ok("/usr/local/bin/csi", *line)

    def _init(self) -> int:
        assert self._container is not None
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children").read_text().split()
        return int(children[0]) if children else self._container.pid

    # ── systemd ─────────────────────────────────────────────────────────────────────────────────────────

    def show(self, unit: str, name: str) -> str:
        return self.ok("systemctl", "show", "-p", name, "--value", unit).strip()

    def is_active(self, unit: str) -> bool:
        return self.show(unit, "ActiveState") == "active"

    def wait_active(self, *units: str, seconds: float = 60) -> None:
        assert wait_until(lambda: all(self.is_active(unit) for unit in units), seconds), self.log()

    def log(self, *options: str) -> str:
        line = ["journalctl", "--no-pager", "-o", "cat", *(options or ("-n", "40", "-u", "csi*"))]
        return self.run(*line).stdout

    # ── files and neighbours ────────────────────────────────────────────────────────────────────────────

    def checkout(self) -> Path:
        """This checkout, without what git ignores, at /root/csi."""
        there = self.root / "root/csi"
        there.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        tar = subprocess.run(
            ["tar", "--null", "-T", "-", "-c"], cwd=ROOT, input=listed, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", there, "--no-same-owner"], input=tar.stdout, check=True)
        return there

    def beside(self, log: str, *line: object, **env: str) -> None:
        """Run a command of this checkout in the machine's network, until the machine is removed."""
        with (self.work / log).open("ab") as out:
            command = ["ip", "netns", "exec", self.name, sys.executable, "-P", "-m", "csi", *map(str, line)]
            variables = {**os.environ, **env, "PYTHONPATH": str(ROOT)}
            self._beside.append(subprocess.Popen(command, env=variables, stdout=out, stderr=out, cwd=self.work))

    def start_neighbours(self) -> dict[str, Any]:
        """The simulated YouTube and a receiver. Returns what the simulator printed about itself."""
        options = ("--channels", 1, "--playlists", 1, "--rate", 0.5, "--quota", 1_000_000, "--seed", 7)
        ledger = self.work / "youtube.jsonl"
        self.beside("sim.log", "simulate", "youtube", "--port", SIMULATOR, *options, "--ledger", ledger)
        variables = {"UA_SIGNALS_INGEST_SHARED_SECRET": SECRET, "UA_SIGNALS_INGEST_ENABLED": "1"}
        files = ("--db", self.work / "receiver.db", "--ledger", self.work / "receiver.jsonl")
        self.beside("rec.log", "receiver", "--port", RECEIVER, *files, **variables)
        found: list[dict[str, Any]] = []

        def printed() -> bool:
            lines = (self.work / "sim.log").read_text().splitlines()
            found[:] = [json.loads(line) for line in lines if line.startswith('{"base')]
            return bool(found)

        assert wait_until(printed, 60), (self.work / "sim.log").read_text()
        return found[0]

    def missing(self, older_than: float) -> tuple[int, int]:
        """How many items the simulator served that long ago did not arrive, and how many it served."""
        now = time.time()
        served = {
            (line["video_id"], line["ref"][:2]): line["at"]
            for line in _lines(self.work / "youtube.jsonl")
            if line["kind"] != "uploads"
        }
        parts = [line["event_id"].split(":") for line in _lines(self.work / "receiver.jsonl")]
        got = {(part[3], "PL" if part[2] == "playlist" else "UC") for part in parts}
        return len([key for key, at in served.items() if key not in got and now - at > older_than]), len(served)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def _run(*line: object) -> None:
    subprocess.run(list(map(str, line)), check=True, capture_output=True)


def fetch_wheels(target: Path) -> None:
    """The wheels of requirements.lock, from pip's cache or its index."""
    target.mkdir(exist_ok=True)
    line = [sys.executable, "-m", "pip", "--python", PYTHON, "download", "--quiet", "--disable-pip-version-check"]
    line += ["--require-hashes", "-r", str(ROOT / "requirements.lock"), "-d", str(target)]
    subprocess.run(line, check=True, capture_output=True, timeout=600)


class CannotRun(Exception):
    """This machine has no network for the wheels, or lets no container with systemd come up."""


@contextmanager
def running_machine(work: Path, wheels: Path) -> Iterator[Machine]:
    built = Machine(work, f"csi{os.getpid()}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing stays mounted
    try:
        try:
            fetch_wheels(wheels)
            (work / "wheels").symlink_to(wheels)
            built.create()
            built.checkout()
            built.boot()
        except (subprocess.SubprocessError, OSError, AssertionError) as error:
            raise CannotRun(f"{error} {getattr(error, 'stderr', '')!r}"[-600:]) from error
        yield built
    finally:
        built.remove()
