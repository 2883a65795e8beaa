"""Run the demo: start the processes, publish items, wait until all have arrived, and summarize."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from csi import clock, local_login
from csi.demo import configuration, processes
from csi.demo.configuration import DemoOptions, DemoSecrets
from csi.demo.live_view import DemoPhase, DemoView
from csi.demo.processes import TICK, ChildProcesses, StopSignals
from csi.demo.processing_account import DEADLINE_SECONDS, ProcessingAccount, ProcessingMonitor
from csi.demo.progress import ProgressReader
from csi.demo.publisher import Publisher
from csi.demo.reconciliation import DeliverySummary, summarize
from csi.errors import CsiError, NetError, StoreError
from csi.logs import register_secret
from csi.net import Net
from csi.simulator.http_server import listen
from csi.simulator.youtube.faults import read_script
from csi.store import db, heartbeats

SNAPSHOT_SECONDS = 0.25
DRAIN_SECONDS = 15.0
DRAIN_SECONDS_WITH_FAULTS = 100.0
"""A watch whose poll failed may wait a minute before the next poll."""


@dataclass(frozen=True)
class DemoResult:
    """The summary of a finished run. `drained` is False if items were still pending at the end."""

    summary: DeliverySummary
    sidecar: str
    pids: dict[str, int]
    drained: bool
    processing: ProcessingAccount | None = None


@contextlib.contextmanager
def state_directory(keep: str | None) -> Iterator[Path]:
    """A directory for one run, removed at the end unless `keep` is a path, or "" for a temporary directory."""
    if keep:
        home = Path(keep)
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_empty = not any(home.iterdir())
        except OSError as error:
            raise CsiError(f"--keep {keep}: cannot be used: {error.strerror}; choose another directory") from error
        if not is_empty:
            raise CsiError(f"--keep {keep}: the directory is not empty; choose a new or empty directory")
    else:
        home = Path(tempfile.mkdtemp(prefix="csi-demo-"))
    try:
        yield home.resolve()
    finally:
        if keep is None:
            shutil.rmtree(home, ignore_errors=True)


def run_demo(options: DemoOptions, home: Path, view: DemoView, *, seconds: float | None) -> DemoResult:
    """Run until `seconds` are over, or Ctrl-C. No process is left running when this returns or raises."""
    configuration.check_rate(options)
    read_script(options.faults)  # reports a bad script before anything starts
    signals, secrets = StopSignals(), DemoSecrets()
    for secret in (secrets.shared, secrets.api, secrets.admin):
        register_secret(secret)
    env = configuration.environment(os.environ, secrets, home / "config.yaml")
    with signals.handled(), Net() as net, ChildProcesses(home, processes.code_dir(), env, signals) as children:
        with contextlib.closing(DemoRun(options, home, net, children, signals, view)) as run:
            run.start_processes()
            run.publish(seconds)
            drained = run.drain()
            account = run.await_processing()
        children.stop_all()
        return DemoResult(summarize(run.progress.contents()), run.sidecar, children.pids, drained, account)


class DemoRun:
    """One run of the demo, step by step."""

    def __init__(
        self, options: DemoOptions, home: Path, net: Net, children: ChildProcesses, signals: StopSignals, view: DemoView
    ) -> None:
        self._options, self._home, self._net = options, home, net
        self._children, self._signals, self._view = children, signals, view
        self._served, self._received = home / "served.jsonl", home / "received.jsonl"
        self._last_snapshot = 0.0
        self._database_open = False
        self._processing: ProcessingMonitor | None = None
        self.progress = ProgressReader(self._served, self._received)
        self.sidecar, self._link = "", ""

    def start_processes(self) -> None:
        """Start every process after those that it needs."""
        with_processing, children = self._options.processing, self._children
        more = ", processing" if with_processing else ""
        self._view.say(f"starting simulator, receiver{more}, worker and sidecar …")
        children.start("simulator", configuration.simulator_command(self._options, self._served))
        receiver = configuration.receiver_command(self._home, self._received, pages=with_processing)
        if not with_processing:
            children.start("receiver", receiver)
        simulator = children.await_output("simulator", configuration.read_simulator_info)
        if with_processing:  # the receiver's pages need processing.yaml, which needs the simulator's address
            file = self._home / configuration.PROCESSING_FILE
            file.write_text(yaml.safe_dump(configuration.processing_config(self._home, simulator)), "utf-8")
            children.start("processing", configuration.PROCESSING_COMMAND)
            self._processing = ProcessingMonitor(file)
            children.start("receiver", receiver)
        endpoint = children.await_output("receiver", configuration.read_receiver_endpoint)
        with contextlib.closing(listen("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        self.sidecar = f"http://127.0.0.1:{port}"
        config = configuration.ingester_config(self._home, simulator, endpoint, port)
        (self._home / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
        children.start("worker", configuration.WORKER_COMMAND)
        children.start("sidecar", configuration.SIDECAR_COMMAND)
        children.await_value("worker", self._worker_heartbeat)
        children.await_value("sidecar", self._sidecar_answers)
        if self._processing is not None:
            children.await_value("processing", self._processing.last_heartbeat)
            link = f"{endpoint.partition('/api/')[0]}/ui/login?key={local_login.make_key(self._home)}"
            self._view.say(f"summaries, by a link that works once: {link}")
        self._publisher = Publisher(self._net, simulator, self._options.rate)
        key = local_login.make_key(self._home, local_login.SIDECAR_LINK_FILE)
        self._link = f"{self.sidecar}/login?key={key}"
        self._view.say(f"dashboard, by a link that works once: {self._link}")

    def publish(self, seconds: float | None) -> None:
        """Publish new items until the time is over or Ctrl-C."""
        started = time.monotonic()
        while not self._signals.interrupts and (seconds is None or time.monotonic() - started < seconds):
            try:
                self._publisher.publish_due(time.monotonic() - started)
            except NetError:
                self._children.check()  # raises the better error if the simulator has exited
                raise
            self._wait_step("running", started, "Ctrl-C ends the demo")

    def drain(self) -> bool:
        """Wait until everything that was served has arrived. False if it has not within the time limit."""
        limit = DRAIN_SECONDS_WITH_FAULTS if self._options.faults else DRAIN_SECONDS
        hint = f"no more new items; waiting up to {limit:g} s until all have arrived (Ctrl-C again: do not wait)"
        self._view.say(hint)
        if self._options.faults:
            self._publisher.end_faults()
        interrupts, ended, started = self._signals.interrupts, clock.now(), time.monotonic()
        polled: set[int] = set()
        while time.monotonic() - started < limit and self._signals.interrupts == interrupts:
            polled |= self.progress.polled_since(ended)
            if len(polled) >= self._options.watches:
                summary = summarize(self.progress.contents())
                if summary.lost == 0 and summary.pending == 0:
                    self._update_view("draining", started, hint)
                    return True
            self._wait_step("draining", started, hint)
        return False

    def await_processing(self) -> ProcessingAccount | None:
        """Wait until every video is summarized, skipped, dead or waits for YouTube. None without --processing."""
        if self._processing is None:
            return None
        self._view.say("waiting until all videos are summarized …")
        interrupts, started = self._signals.interrupts, time.monotonic()
        while time.monotonic() - started < DEADLINE_SECONDS and self._signals.interrupts == interrupts:
            if self._processing.is_done():
                break
            self._wait_step("summarizing", started, "Ctrl-C: do not wait")
        return self._processing.account()

    def close(self) -> None:
        self._view.close()

    def _wait_step(self, phase: str, started: float, hint: str) -> None:
        """One step of a waiting loop. Raises when a process has exited or the demo shall stop."""
        self._children.check()
        self._signals.check()
        if time.monotonic() - self._last_snapshot >= SNAPSHOT_SECONDS:
            self._last_snapshot = time.monotonic()
            self._update_view(phase, started, hint)
        time.sleep(TICK)

    def _update_view(self, phase: str, started: float, hint: str) -> None:
        elapsed = time.monotonic() - started
        self._view.update(DemoPhase(self._link, phase, elapsed, hint), self.progress.snapshot())

    def _worker_heartbeat(self) -> float | None:
        """None until the worker has migrated the database and written its first heartbeat."""
        database = self._home / "csi.db"
        if not database.exists():
            return None
        if not self._database_open:
            db.open_database(str(database))
            self._database_open = True
        try:
            with db.reading():
                return heartbeats.last_beat(heartbeats.WORKER)
        except StoreError:
            return None

    def _sidecar_answers(self) -> bool | None:
        try:
            return self._net.get(f"{self.sidecar}/healthz").status == 200 or None
        except NetError:
            return None
