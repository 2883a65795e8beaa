"""One run of the demo: set the stage, let items appear, wait until all of them arrived, and settle the account."""

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from csi import clock
from csi.demo import configuration
from csi.demo.configuration import DemoOptions, DemoSecrets, SimulatorInfo
from csi.demo.live_view import DemoPhase, DemoView
from csi.demo.processes import TICK, ChildProcesses, StopSignals
from csi.demo.processing_account import PATIENCE, ProcessingAccount, ProcessingMonitor
from csi.demo.progress import ProgressReader
from csi.demo.publisher import Publisher
from csi.demo.reconciliation import DeliverySummary, summarize
from csi.errors import CsiError, NetError, StoreError
from csi.logs import register_secret
from csi.net import Net
from csi.simulator.youtube.faults import read_script
from csi.store import db, heartbeats

LOOK_SECONDS = 0.25
DRAIN_SECONDS = 15.0
DRAIN_SECONDS_WITH_FAULTS = 100.0
"""A watch that failed waits up to a minute before it is read again."""


@dataclass(frozen=True)
class DemoResult:
    """How it ended."""

    summary: DeliverySummary
    sidecar: str
    pids: dict[str, int]
    drained: bool
    processing: ProcessingAccount | None = None


@dataclass(frozen=True)
class RunFiles:
    """The files of one run."""

    home: Path

    @property
    def config(self) -> Path:
        return self.home / "config.yaml"

    @property
    def database(self) -> Path:
        return self.home / "csi.db"

    @property
    def served(self) -> Path:
        return self.home / "served.jsonl"

    @property
    def received(self) -> Path:
        return self.home / "received.jsonl"


@contextlib.contextmanager
def state_directory(keep: str | None) -> Iterator[Path]:
    """A directory for one run: removed at the end, unless it is to be kept (a path, or "" for a temporary one)."""
    home = _empty_dir(Path(keep)) if keep else Path(tempfile.mkdtemp(prefix="csi-demo-"))
    try:
        yield home
    finally:
        if keep is None:
            shutil.rmtree(home, ignore_errors=True)


def run_demo(shape: DemoOptions, home: Path, view: DemoView, *, seconds: float | None) -> DemoResult:
    """Run until `seconds` are over, or Ctrl-C. Whatever happens, no process is left when this returns or raises."""
    configuration.check_rate(shape)
    read_script(shape.faults)  # a script that cannot be read is said before anything starts
    wishes, keys, places = StopSignals(), DemoSecrets(), RunFiles(home)
    for secret in (keys.shared, keys.api):
        register_secret(secret)
    env = configuration.environment(os.environ, keys, places.config)
    with wishes.caught(), Net() as net, ChildProcesses(home, configuration.code_dir(), env, wishes) as children:
        with contextlib.closing(DemoRun(shape, places, net, children, wishes, view)) as run:
            run.begin()
            run.publish(seconds)
            drained = run.drain()
            account = run.follow_up() if shape.processing else None
        children.stop_all()
        return DemoResult(summarize(run.watcher.books()), run.sidecar, children.pids, drained, account)


class DemoRun:
    """The demo between its start and its account."""

    def __init__(
        self,
        shape: DemoOptions,
        places: RunFiles,
        net: Net,
        children: ChildProcesses,
        wishes: StopSignals,
        view: DemoView,
    ) -> None:
        self._shape, self._places, self._net = shape, places, net
        self._children, self._wishes, self._view = children, wishes, view
        self._last_look = 0.0
        self._opened = False
        self._aftermath: ProcessingMonitor | None = None
        self.watcher = ProgressReader(places.served, places.received)
        self.sidecar = ""

    def begin(self) -> None:
        """All processes up, in the order in which they need each other."""
        more = ", processing" if self._shape.processing else ""
        self._view.say(f"starting simulator, receiver{more}, worker and sidecar …")
        children, places = self._children, self._places
        children.start("simulator", configuration.simulator_command(self._shape, places.served))
        receiver = configuration.receiver_command(places.home, places.received, pages=self._shape.processing)
        if not self._shape.processing:
            children.start("receiver", receiver)
        site = children.await_output("simulator", configuration.read_simulator_info)
        if self._shape.processing:  # its pages need processing.yaml, which needs the simulator's address
            self._begin_processing(site)
            children.start("receiver", receiver)
        endpoint = children.await_output("receiver", configuration.read_receiver_endpoint)
        self._write_config(site, endpoint)
        children.start("worker", configuration.worker_command())
        children.start("sidecar", configuration.sidecar_command())
        children.await_value("worker", self._worker_beats)
        children.await_value("sidecar", self._sidecar_answers)
        if self._aftermath is not None:
            children.await_value("processing", self._aftermath.beats)
            self._view.say(f"summaries at {endpoint.partition('/api/')[0]}/ui")
        self._publisher = Publisher(self._net, site, self._shape.rate)
        self._view.say(f"sidecar at {self.sidecar} (try {self.sidecar}/readyz and {self.sidecar}/metrics)")

    def publish(self, seconds: float | None) -> None:
        """New items until the time is over or somebody asks for the end."""
        started = time.monotonic()
        while not self._wishes.interrupts and (seconds is None or time.monotonic() - started < seconds):
            self._publish_due(time.monotonic() - started)
            self._look_on(DemoPhase(self.sidecar, "running", time.monotonic() - started, "Ctrl-C ends the demo"))

    def drain(self) -> bool:
        """Nothing new from here on: wait until what was served has arrived. False: it has not, in the time there is."""
        limit = DRAIN_SECONDS_WITH_FAULTS if self._shape.faults else DRAIN_SECONDS
        hint = f"no more new items; waiting up to {limit:g} s until all have arrived (Ctrl-C again: do not wait)"
        self._view.say(hint)
        if self._shape.faults:
            self._publisher.end_faults()
        asked, ended, started = self._wishes.interrupts, clock.now(), time.monotonic()
        read: set[int] = set()
        while time.monotonic() - started < limit and self._wishes.interrupts == asked:
            scene = DemoPhase(self.sidecar, "draining", time.monotonic() - started, hint)
            read |= self.watcher.read_since(ended)
            if len(read) >= self._shape.homes and _settled(summarize(self.watcher.books())):
                self._view.update(scene, self.watcher.look())
                return True
            self._look_on(scene)
        return False

    def follow_up(self) -> ProcessingAccount | None:
        """Wait until everything that arrived is summarised, skipped or dead; then settle that account, too."""
        if self._aftermath is None:
            return None
        self._view.say("waiting until all of it is summarised …")
        asked, started = self._wishes.interrupts, time.monotonic()
        while time.monotonic() - started < PATIENCE and self._wishes.interrupts == asked:
            if self._aftermath.is_done():
                break
            self._look_on(DemoPhase(self.sidecar, "summarising", time.monotonic() - started, "Ctrl-C: do not wait"))
        return self._aftermath.account()

    def close(self) -> None:
        self._view.close()

    def _begin_processing(self, site: SimulatorInfo) -> None:
        file = self._places.home / configuration.PROCESSING
        file.write_text(yaml.safe_dump(configuration.processing_config(self._places.home, site)), "utf-8")
        self._children.start("processing", configuration.processing_command())
        self._aftermath = ProcessingMonitor(file)

    def _publish_due(self, elapsed: float) -> None:
        try:
            self._publisher.catch_up(elapsed)
        except NetError:
            self._children.check()  # most likely the simulator is gone: say that
            raise

    def _look_on(self, scene: DemoPhase) -> None:
        """One step of waiting: everybody alive, nobody wants us to go, and the view up to date."""
        self._children.check()
        self._wishes.check()
        if time.monotonic() - self._last_look >= LOOK_SECONDS:
            self._last_look = time.monotonic()
            self._view.update(scene, self.watcher.look())
        time.sleep(TICK)

    def _write_config(self, site: SimulatorInfo, endpoint: str) -> None:
        port = _free_port()
        self.sidecar = f"http://127.0.0.1:{port}"
        text = yaml.safe_dump(configuration.ingester_config(self._places.home, site, endpoint, port), sort_keys=False)
        self._places.config.write_text(text, "utf-8")

    def _worker_beats(self) -> float | None:
        """Its heart beats when the schema is there and its work has begun. Only then is the database opened here."""
        if not self._places.database.exists():
            return None
        if not self._opened:
            db.open_database(str(self._places.database))
            self._opened = True
        try:
            with db.reading():
                return heartbeats.last_beat("worker")
        except StoreError:
            return None

    def _sidecar_answers(self) -> bool | None:
        try:
            return self._net.get(f"{self.sidecar}/healthz").status == 200 or None
        except NetError:
            return None


def _settled(summary: DeliverySummary) -> bool:
    return summary.lost == 0 and summary.pending == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _empty_dir(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = any(path.iterdir())
    except OSError as error:
        raise CsiError(f"--keep {path}: cannot be used: {error.strerror}; choose another directory") from error
    if taken:
        raise CsiError(f"--keep {path}: holds something already; choose a new or empty directory")
    return path.resolve()
