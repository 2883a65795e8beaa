"""`csi run`: all processes in the foreground, for machines without a service manager. `csi login-link`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from csi import clock, local_login, net, runtime, server
from csi.cli.command import config_option, opened, sidecar_url
from csi.cli.output import is_color, safe
from csi.config import loader, settings
from csi.demo import configuration, processes
from csi.errors import STALLED, ConfigError, CsiError, PortInUse
from csi.receiver import settings as receiver_settings
from csi.status import first_reads, sidecar
from csi.store import db, heartbeats

if TYPE_CHECKING:
    from csi.config.settings import Settings

TICK = 0.1
GRACE_SECONDS = 30.0
"""The worker needs up to 25 s to finish its tasks and release its leases."""

REPORT_SECONDS = 600.0
REPORT_LINES = 30
OWN_RECEIVER = "http://127.0.0.1:8090/api/v1/signals/ingest"


@click.command()
@config_option
@click.option(
    "--workers",
    default=configuration.THREADS,
    show_default=True,
    type=click.IntRange(2, 64),
    help="Threads of the worker; streaming_mode adds max_concurrent_events.",
)
@click.option("--no-web", is_flag=True, help="Run the worker without the sidecar.")
@click.option(
    "--receiver", "with_receiver", is_flag=True, help="Also run our receiver, at the address of CSI_UA_ENDPOINT."
)
@click.option(
    "--processing", "with_processing", is_flag=True, help="Also run our receiver and the worker of processing."
)
def run(config_path: Path | None, workers: int, no_web: bool, with_receiver: bool, with_processing: bool) -> None:
    """Run worker and sidecar until Ctrl-C or TERM.

    Prints the dashboard's address with a link that signs you in once, and what the first read of each watch found.
    --receiver keeps its database in csi.state_dir and uses CSI_UA_SHARED_SECRET; --processing reads
    CSI_PROCESSING_CONFIG, if it is set.

    Running tasks finish first, for up to 30 seconds; a second Ctrl-C ends the wait. When one of the processes
    exits, the others are stopped and the exit code is that of the first; a worker whose threads hung ends itself with
    exit code 10 and is started again. All log to standard error. HUP reloads the configuration, unless standard input
    is a terminal, whose end is the same signal.
    """
    if with_receiver or with_processing:
        os.environ["CSI_UA_ENDPOINT"] = os.environ.get("CSI_UA_ENDPOINT") or OWN_RECEIVER
    wanted = runtime.load_settings(config_path)
    loader.require_delivery(wanted)
    loader.require_queue(wanted)
    path = loader.find_file(config_path, os.environ).absolute()
    env = {**os.environ, "CSI_CONFIG_PATH": str(path)}
    # Of two -w options, huey_consumer takes the last.
    lines: dict[str, Sequence[str]] = {"worker": (*configuration.WORKER_COMMAND, "-w", str(workers))}
    if not no_web:
        lines["sidecar"] = configuration.SIDECAR_COMMAND
    started: dict[str, Sequence[str]] = {}
    if with_receiver or with_processing:
        env |= _receiver_env(wanted, env)
        started["receiver"] = _receiver_line(wanted, env, with_processing=with_processing)
    if with_processing:
        started["processing"] = configuration.PROCESSING_COMMAND
    report = StartReport(wanted, has_sidecar=not no_web, env=env if with_processing else None)
    try:
        code = _run_together(started | lines, env, report)
    finally:
        report.close()
    sys.exit(code)


# ── our receiver ────────────────────────────────────────────────────────────────────────────────────────


def _receiver_env(wanted: Settings, env: Mapping[str, str]) -> dict[str, str]:
    """The secret of the sender, and files beside those of the worker, unless the environment says otherwise."""
    state, secret = wanted.csi.state_dir.absolute(), wanted.delivery.shared_secret
    defaults = {receiver_settings.DB_PATH: str(state / "receiver.db")}
    if not env.get("CSI_PROCESSING_CONFIG"):
        defaults["CSI_PROCESSING_STATE_DIR"] = str(state / "processing")
    if secret is not None and not env.get(f"{receiver_settings.SECRET}_FILE"):
        defaults[receiver_settings.SECRET] = secret.get_secret_value()
    return {name: value for name, value in defaults.items() if not env.get(name)}


def _receiver_line(wanted: Settings, env: Mapping[str, str], *, with_processing: bool) -> tuple[str, ...]:
    url = urlsplit(wanted.delivery.ua_endpoint or "")
    if url.scheme != "http" or not net.is_loopback(url.hostname or "") or url.path != urlsplit(OWN_RECEIVER).path:
        raise ConfigError(
            f"--receiver: our receiver on this machine cannot be {safe(wanted.delivery.ua_endpoint, 200)}; set "
            f"CSI_UA_ENDPOINT to {OWN_RECEIVER}, or leave out --receiver"
        )
    host, port = str(url.hostname), url.port or 80
    try:
        server.listen(server.resolve(host, port, setting="CSI_UA_ENDPOINT"), setting="CSI_UA_ENDPOINT").close()
    except PortInUse as error:
        raise PortInUse(
            f"{host}:{port} is in use by another program: if it is a receiver, leave out --receiver; else choose "
            "another port with CSI_UA_ENDPOINT"
        ) from error
    Path(env[receiver_settings.DB_PATH]).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pages = ("--processing",) if with_processing else ()
    return ("csi.cli.main", "receiver", "--host", host, "--port", str(port), *pages)


# ── what the user sees ──────────────────────────────────────────────────────────────────────────────────


class StartReport:
    """Prints the dashboard's link once the sidecar listens, and what the first reads found; bounded."""

    def __init__(self, wanted: Settings, *, has_sidecar: bool, env: Mapping[str, str] | None) -> None:
        self._wanted, self._since = wanted, clock.now()
        self._awaits_sidecar, self._env = has_sidecar, env
        self._said: set[tuple[int, bool]] = set()
        self._next_at = time.monotonic() + 0.5
        self._ends_at = time.monotonic() + REPORT_SECONDS
        self._rt: runtime.Runtime | None = None

    def step(self) -> None:
        now = time.monotonic()
        if not self._next_at <= now < self._ends_at:
            return
        self._next_at = now + 1.0
        try:
            if self._rt is None:
                url = self._wanted.csi.database_url
                if not settings.looks_like_postgres(url) and not Path(url).exists():
                    raise CsiError("the worker has not started yet")
                db.open_database(url)
                if db.pending_migrations():
                    raise CsiError("the worker has not migrated the database yet")
                self._rt = runtime.Runtime(self._wanted, net.Net())
            rt = self._rt
            with db.reading():
                self._report(rt)
        except (CsiError, db.DatabaseError):
            return  # the worker has not made the database yet, or reports itself what is wrong with it

    def close(self) -> None:
        if self._rt is not None:
            self._rt.net.close()

    def _report(self, rt: runtime.Runtime) -> None:
        if self._awaits_sidecar:
            heartbeat = heartbeats.latest(heartbeats.SIDECAR)
            if heartbeat is not None and heartbeat.beat_at >= self._since and heartbeat.address:
                self._awaits_sidecar = False
                _say(f"dashboard, by a link that works once: {login_url(self._wanted, heartbeat.address)}")
                if self._env is not None:
                    endpoint = (self._wanted.delivery.ua_endpoint or "").partition("/api/")[0]
                    folder = Path(self._env[receiver_settings.DB_PATH]).absolute().parent
                    _say(
                        f"summaries, by a link that works once: {endpoint}/ui/login?key={local_login.make_key(folder)}"
                    )
        for one in first_reads.first_reads(rt, self._since):
            if (one.watch_id, one.is_good) in self._said or len(self._said) > REPORT_LINES:
                continue
            self._said.add((one.watch_id, one.is_good))
            more = len(self._said) > REPORT_LINES
            _say("more watches: csi sources list" if more else safe(one.words, 200))


def _say(text: str) -> None:
    """On standard output: the log goes to standard error."""
    click.secho(f"→ {text}", bold=True, color=is_color(sys.stdout))
    sys.stdout.flush()


def login_url(wanted: Settings, base: str) -> str:
    """The dashboard's address with a new link; only the address, with what is missing, where no token is set."""
    if not wanted.features.dashboard:
        return f"{base}/ (features.dashboard is off)"
    if wanted.secrets.admin_token is None and wanted.secrets.admin_read_token is None:
        return f"{base}/ (set CSI_ADMIN_TOKEN first: openssl rand -hex 32)"
    key = local_login.make_key(wanted.csi.state_dir, local_login.SIDECAR_LINK_FILE)
    return f"{base}/login?key={key}"


@click.command("login-link")
@config_option
@click.option("--url", help="Where your browser reaches the dashboard.  [default: the sidecar's address]")
def login_link(config_path: Path | None, url: str | None) -> None:
    """Print a link that signs a browser in on the dashboard once, without the token.

    It works for 10 minutes, with the rights of CSI_ADMIN_TOKEN. Run it as the user of the sidecar, or as root.
    """
    wanted = runtime.load_settings(config_path)
    if wanted.secrets.admin_token is None and wanted.secrets.admin_read_token is None:
        raise ConfigError(
            "the dashboard needs a token: set CSI_ADMIN_TOKEN (openssl rand -hex 32), restart the sidecar"
        )
    if url is None:
        try:
            with opened(wanted) as rt:
                url = sidecar.sidecar_address(rt)
        except CsiError:
            url = None  # the sidecar has not made the database yet
    click.echo(login_url(wanted, (url or sidecar_url(wanted)).rstrip("/")))


# ── the processes ───────────────────────────────────────────────────────────────────────────────────────


def _run_together(lines: Mapping[str, Sequence[str]], env: Mapping[str, str], report: StartReport | None = None) -> int:
    """Run until a signal arrives (returns 0) or one of the processes exits (returns its exit code); then stop all."""
    # The working directory stays the caller's: relative paths in the configuration refer to it.
    running: dict[str, subprocess.Popen[bytes]] = {}
    has_terminal = sys.stdin.isatty() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # nohup ignores it
    with processes.StopSignals().handled() as signals:
        if not has_terminal:
            signal.signal(signal.SIGHUP, lambda number, frame: _reload(running))
        try:
            for name, line in lines.items():
                # Our receiver prints where to point CSI at; here that is done.
                quiet = {"stdout": subprocess.DEVNULL} if name == "receiver" else {}
                running[name] = _start(line, env, **quiet)
            while not signals.count:
                for name, process in running.items():
                    code = process.poll()
                    if code == STALLED:
                        click.echo(
                            f"csi: the {name} ended itself because its threads hung; it is started again", err=True
                        )
                        running[name] = _start(lines[name], env)
                    elif code is not None:
                        code = code if code >= 0 else 128 - code  # as a shell reports it: 128 plus the signal's number
                        click.echo(f"csi: the {name} exited unexpectedly (exit code {code})", err=True)
                        return code
                if report is not None:
                    report.step()
                time.sleep(TICK)
            return 0
        finally:
            senders = [process for name, process in running.items() if name in ("worker", "sidecar")]
            _stop_all(senders, signals)
            _stop_all([process for process in running.values() if process not in senders], signals)


def _start(line: Sequence[str], env: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """The process ignores SIGHUP until it handles it: one that comes while the worker starts must not end it."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return processes.start_module(line, env=env, **options)
    finally:
        signal.signal(signal.SIGHUP, handler)


def _reload(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    if (worker := running.get("worker")) is not None and worker.poll() is None:
        worker.send_signal(signal.SIGHUP)


def _stop_all(running: list[subprocess.Popen[bytes]], signals: processes.StopSignals) -> None:
    """Terminate all, wait for all, then kill the rest. Another signal ends the wait."""
    for process in running:
        if process.poll() is None:
            process.terminate()
    deadline, count = time.monotonic() + GRACE_SECONDS, signals.count
    while any(process.poll() is None for process in running):
        if time.monotonic() > deadline or signals.count > count:
            break
        time.sleep(TICK)
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
