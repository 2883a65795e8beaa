"""One installation that a fault is injected into, and the times at which each surface says so.

Worker and sidecar are real processes. Messages arrive at a real HTTP server by apprise's `json://`, the heartbeat URL
is another one, and `/readyz`, `/livez` and `/metrics` are asked every second. Delays of notifications are the shipped
ones.
"""

import json
import re
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx

from tests.fakes.raw_server import RawServer, Send, answer
from tests.fakes.scripted_receiver import Reply, ScriptedReceiver, accept, json_reply
from tests.rigs.processes import CONSUMER, Installation, Worker, free_port, installation
from tests.rigs.prometheus import SCRAPE_SECONDS, Prometheus

PROVEN, PASSING = 30.0, 240.0
"""Within so many seconds the operator has the message: where one answer proves the problem, and where it may pass."""
POLL_SECONDS = 2
PING_SECONDS = 15
"""The shortest allowed time between two pings of the heartbeat URL."""
CHECK_SECONDS = 1.0

STARTING = threading.BoundedSemaphore(3)
"""Python processes that start at the same time take the processor from each other and from those that are measured."""


@dataclass(frozen=True)
class Message:
    """One notification as it arrived."""

    at: float
    title: str
    text: str

    @property
    def is_end(self) -> bool:
        return self.title.endswith(": resolved")

    @property
    def commands(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.text)


class TrustInstallation(Installation):
    """An installation with its sidecar, a scripted receiver, a target for messages and a heartbeat URL."""

    pages: ClassVar[Mapping[str, str]] = {}
    """Paths of pages that have another name here."""
    metric: ClassVar[str] = "csi_problems"
    job: ClassVar[str] = "csi"
    """The job of Prometheus that scrapes it."""
    pings: ClassVar[bool] = True
    """There is a heartbeat URL."""

    receiver: ScriptedReceiver
    target: ScriptedReceiver
    heartbeat: RawServer
    extra_env: Mapping[str, str]
    port: int
    worker: Worker
    sidecar: Worker
    opened: ExitStack

    def __init__(self, *given: Any, **blocks: Any) -> None:
        self.extra_env, self.pinged_at, self.target_fails_until = {}, list[float](), 0.0
        super().__init__(*given, **blocks)

    @property
    def env(self) -> dict[str, str]:
        urls = {
            "CSI_UA_ENDPOINT": "",  # it is in the file, so that a reload can change it
            "CSI_NOTIFY_URLS": f"json://127.0.0.1:{_port(self.target.url)}/",
            "CSI_HEARTBEAT_URL": f"{self.heartbeat.url}/ping",
        }
        return {name: value for name, value in (super().env | urls | dict(self.extra_env)).items() if value != ""}

    # ── processes ───────────────────────────────────────────────────────────────────────────────────────

    def start_worker(self, *line: str) -> None:
        self.worker = self.start(*(line or CONSUMER))

    def start_sidecar(self) -> None:
        self.sidecar = self.start(sys.executable, "-m", "csi.main")

    def end_worker(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.worker.send_signal(number)
        self.worker.wait(40)

    def restart_worker(self) -> None:
        self.end_worker(signal.SIGTERM)
        self.start_worker()

    def reload(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Edit the configuration and let the worker read it."""
        self.change(edit)
        self.worker.send_signal(signal.SIGHUP)

    # ── what the operator sees ──────────────────────────────────────────────────────────────────────────

    def page(self, path: str, client: httpx.Client) -> tuple[int, str]:
        """(0, "") where nothing answers."""
        try:
            response = client.get(f"http://127.0.0.1:{self.port}/{self.pages.get(path, path)}")
        except httpx.TransportError:
            return 0, ""
        return response.status_code, response.text

    def messages(self) -> list[Message]:
        """What the target accepted."""
        accepted = [request for request in tuple(self.target.requests) if request.at >= self.target_fails_until]
        found = [(request.at, json.loads(request.body)) for request in accepted]
        return [Message(at, body["title"].partition(": ")[2], body["message"]) for at, body in found]

    def has_problem(self, problem: str, client: httpx.Client) -> bool:
        """As the metrics say."""
        found = re.search(
            rf'^{self.metric}{{problem="{problem}"}} (\S+)', self.page("metrics", client)[1], re.MULTILINE
        )
        return found is not None and float(found[1]) > 0

    def wait_until_healthy(self) -> None:
        self.publish()
        with httpx.Client(timeout=5) as client:
            self.wait_for(lambda: self.page("readyz", client)[0] == 200 and self.receiver.taken, 90)
        self.wait_for(lambda: self.pinged_at or "CSI_HEARTBEAT_URL" not in self.env, 90)

    # ── what tests change ───────────────────────────────────────────────────────────────────────────────

    def publish(self, number: int = 1) -> None:
        """Publish new items in every playlist and channel."""
        for index in range(number):
            for ref in self.yt.playlists:
                self.yt.add(ref, f"Item {index}")
            for ref in self.yt.channels:
                self.yt.upload(ref, f"Item {index}")

    def execute(self, sql: str, *values: object) -> None:
        """Change rows: what happened in the past, or how long ago."""
        connection = sqlite3.connect(self.state / "csi.db", timeout=30)
        with connection:
            connection.execute(sql, values)
        connection.close()

    def fail_target(self, behaviour: Reply, seconds: float) -> None:
        """Messages are not accepted for so long."""
        self.target_fails_until = time.time() + seconds
        self.target.then = lambda request: behaviour if request.at < self.target_fails_until else json_reply(200)

    def publish_every(self, seconds: float) -> None:
        """Until the installation ends."""
        over = threading.Event()
        self.opened.callback(over.set)

        def work() -> None:
            while not over.wait(seconds):
                self.publish()

        threading.Thread(target=work, daemon=True).start()

    def write_config(self, text: str) -> None:
        """A configuration as an editor leaves it, then a reload."""
        (self.home / "config.yaml").write_text(text)
        self.worker.send_signal(signal.SIGHUP)


@dataclass(frozen=True)
class Injection:
    """One row of the table: a fault, how it ends, and who has to say it within which time."""

    name: str
    problem: str
    """The problem's id in the metric `csi_problems` and, in words, in the message's title. Empty: it is no problem."""
    inject: Callable[[TrustInstallation], object]
    cause: str
    """Words that the message contains; `|` between alternatives."""
    limit: float = PASSING
    heal: Callable[[TrustInstallation], object] | None = None
    """None: the remedy alone ends it, or it ends with the installation."""
    remedy: str | None = None
    """The `csi` command of the message that the test runs before it waits for the end of the problem."""
    readyz: bool = False
    livez: bool = False
    notifies: bool = True
    doctor: str | None = None
    """Words that `csi doctor` has to say."""
    heals: bool = True
    """The problem ends by `heal` and `remedy` within HEALED_SECONDS."""
    ends_soon: bool = True
    """False: the message of its end waits longer than RESOLVED_SECONDS, since the problem may come back."""
    channels: int = 1
    playlists: int = 1
    blocks: Mapping[str, Any] = field(default_factory=dict)
    """Blocks of the configuration, merged into the rig's."""
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[TrustInstallation], object] | None = None
    """Called before the processes start."""
    starts_healthy: bool = True
    """False: the fault is there from the start, and `inject` starts the worker."""
    build: type[TrustInstallation] = TrustInstallation
    quick: bool = False
    """Part of `make test`."""
    number: int = 0


HEALED_SECONDS = 90.0
RESOLVED_SECONDS = 120.0


@dataclass
class Observation:
    """Seconds from the injection until each surface said it; None: it did not."""

    readyz: float | None = None
    livez: float | None = None
    metric: float | None = None
    notification: float | None = None
    doctor: float | None = None
    heartbeat: float | None = None
    """Until two pings of the heartbeat URL were missing, which is what a monitoring service reports."""
    healed: float | None = None
    resolved: float | None = None
    message: Message | None = None
    reasons: str = ""
    titles: tuple[str, ...] = ()
    """Of all messages since the injection."""
    alerts: dict[str, float] | None = None
    """Rules of Prometheus whose expression became true, with the seconds until they fire. None: not installed."""
    faults: list[str] = field(default_factory=list)

    @property
    def cause(self) -> str:
        text = self.message.text if self.message else self.reasons
        return text.partition(". Since ")[0].replace('"', "'")


def line(row: Injection, seen: Observation) -> str:
    """`trust 17 receiver_401: readyz=3s notification=12s … cause="…" ok`."""
    times = {
        "readyz": seen.readyz,
        "livez": seen.livez,
        "metric": seen.metric,
        "notification": seen.notification,
        "doctor": seen.doctor,
        "heartbeat": seen.heartbeat,
        "healed": seen.healed,
        "resolved": seen.resolved,
    }
    shown = " ".join(f"{name}={seconds:.0f}s" for name, seconds in times.items() if seconds is not None)
    rules = "".join(f" {name}={seconds:.0f}s" for name, seconds in sorted((seen.alerts or {}).items()))
    verdict = "ok" if not seen.faults else "FAILS " + "; ".join(seen.faults)
    return f'trust {row.number} {row.name}: {shown}{rules} limit={row.limit:.0f}s cause="{seen.cause}" {verdict}'


@contextmanager
def trust_installation(home: Path, row: Injection, server: Prometheus | None) -> Iterator[TrustInstallation]:
    """A healthy installation: worker and sidecar run, `/readyz` answers 200, one event was delivered."""
    home.mkdir(parents=True)
    with ExitStack() as opened:
        receiver = opened.enter_context(ScriptedReceiver(then=accept))
        target = opened.enter_context(ScriptedReceiver(then=lambda request: (200, {}, {})))
        pinged_at: list[float] = []
        heartbeat = opened.enter_context(RawServer(lambda request: _note_ping(pinged_at)))
        box = opened.enter_context(installation(home, channels=row.channels, playlists=row.playlists, build=row.build))
        assert isinstance(box, TrustInstallation)
        box.receiver, box.target, box.heartbeat, box.pinged_at = receiver, target, heartbeat, pinged_at
        box.opened, box.port, box.extra_env = opened, free_port(), dict(row.env)
        box.change(lambda config: _configure(config, box, row.blocks))
        if row.prepare is not None:
            row.prepare(box)
        with STARTING:
            box.start_sidecar()
            with httpx.Client(timeout=5) as client:
                box.wait_for(lambda: box.page("healthz", client)[0] == 200, 90)
            if row.starts_healthy:
                box.start_worker()
                box.wait_until_healthy()
        if server is not None:
            server.add(row.name, box.port, box.job)
            opened.callback(server.remove, row.name)
        yield box


def _configure(config: dict[str, Any], box: TrustInstallation, blocks: Mapping[str, Any]) -> None:
    for source in config["sources"].values():
        source["poll_interval_seconds"] = POLL_SECONDS
    if not config["sources"]["youtube_playlist"]["playlists"]:
        del config["sources"]["youtube_playlist"]
    config |= {"web": {"port": box.port}, "notify": {"heartbeat_seconds": PING_SECONDS}}
    config["notify"] |= {"weekly_test": False, "daily_summary": False}  # a run over 9:00 gets no message of its own
    config["delivery"] |= {"timeout_seconds": 5, "ua_endpoint": box.receiver.url}
    _merge(config, blocks)


def _merge(into: dict[str, Any], blocks: Mapping[str, Any]) -> None:
    for name, value in blocks.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _note_ping(pinged_at: list[float]) -> Sequence[Send]:
    pinged_at.append(time.time())
    return [Send(answer(200))]


def _port(url: str) -> str:
    return url.split(":")[2].split("/")[0]


def measure(home: Path, row: Injection, server: Prometheus | None, *, to_the_end: bool) -> Observation:
    """Inject the fault, note what says so, end the fault, note when the problem is over.

    `to_the_end`: also wait for the message that it is resolved. Otherwise only a remedy that is a command is tried.
    """
    seen = Observation()
    with trust_installation(home, row, server) as box, httpx.Client(timeout=5) as client:
        earlier = len(box.messages())
        began = time.time()
        row.inject(box)
        _watch(box, row, seen, began, earlier, client)
        if server is not None:
            seen.alerts = _alerts(server, row, began)
        if row.heals and (to_the_end or row.remedy is not None):
            _end(box, row, seen, earlier, client, to_the_end=to_the_end)
        seen.titles = tuple(one.title for one in box.messages()[earlier:])
    seen.faults += faults_of(row, seen)
    return seen


def _alerts(server: Prometheus, row: Injection, began: float) -> dict[str, float]:
    """The metrics that a rule needs are scraped a little later than the test reads them."""
    _wait(lambda: server.fires(row.name, began), 4 * SCRAPE_SECONDS)
    return server.fires(row.name, began)


def _watch(
    box: TrustInstallation, row: Injection, seen: Observation, began: float, earlier: int, client: httpx.Client
) -> None:
    """Until every surface that has to has said it, or its time is over."""
    surfaces = {"readyz": row.readyz, "livez": row.livez, "metric": bool(row.problem), "notification": row.notifies}
    surfaces |= {"heartbeat": row.livez and box.pings, "doctor": row.doctor is not None}
    while time.time() - began < row.limit + 15:
        _look(box, row, seen, began, earlier, client)
        if all(getattr(seen, name) is not None for name, has_to in surfaces.items() if has_to):
            return
        time.sleep(CHECK_SECONDS)


def _look(
    box: TrustInstallation, row: Injection, seen: Observation, began: float, earlier: int, client: httpx.Client
) -> None:
    for name in ("readyz", "livez"):
        if getattr(seen, name) is None:
            status, body = box.page(name, client)
            if status != 200:
                setattr(seen, name, time.time() - began)
                seen.reasons = seen.reasons or _reasons(body)
    if seen.metric is None and row.problem and box.has_problem(row.problem, client):
        seen.metric = time.time() - began
    if seen.doctor is None and row.doctor is not None and row.doctor in " ".join(box.csi("doctor").stdout.split()):
        seen.doctor = time.time() - began
    for message in box.messages()[earlier:]:
        if seen.message is None and _is_about(message, row.problem):
            seen.message, seen.notification = message, message.at - began
    last_ping = max(box.pinged_at[-1] if box.pinged_at else began, began)
    if row.livez and box.pings and seen.heartbeat is None and time.time() - last_ping > 2 * PING_SECONDS + 5:
        seen.heartbeat = time.time() - began


def _end(
    box: TrustInstallation, row: Injection, seen: Observation, earlier: int, client: httpx.Client, *, to_the_end: bool
) -> None:
    began = time.time()
    if row.heal is not None:
        row.heal(box)
    if row.remedy is not None:
        seen.faults += run_remedy(box, row, seen.message)

    def is_over() -> bool:
        if box.has_problem(row.problem, client):
            return False
        return all(box.page(page, client)[0] == 200 for page in ("metrics", "readyz"))

    if not _wait(is_over, HEALED_SECONDS):
        reasons = _reasons(box.page("readyz", client)[1])
        seen.faults.append(f"not over {HEALED_SECONDS:.0f} s after it was healed: {reasons}")
        return
    seen.healed = time.time() - began

    def is_told() -> bool:
        return any(one.is_end and _is_about(one, row.problem) for one in box.messages()[earlier:])

    if to_the_end and row.ends_soon and seen.message is not None:
        if _wait(is_told, RESOLVED_SECONDS):
            seen.resolved = time.time() - began
        else:
            seen.faults.append("no message that it is resolved")


@dataclass(frozen=True)
class QuietRun:
    """What a run without a fault caused: all of it is too much."""

    disturbances: int
    delivered: int
    messages: list[str]
    alerts: list[tuple[Any, ...]]
    """Rows of alerts that fire at the end, or that operators were notified of."""
    rules: list[str]
    """Alerts that fired in Prometheus, where it is installed."""
    is_ready: bool


def deploy_and_kill(home: Path, server: Prometheus | None, *, seconds: float) -> QuietRun:
    """Restart, reload and kill worker, sidecar and receiver again and again, as deploys and crashes do."""
    row = Injection("deploys_and_kills", "", lambda box: None, "")
    with trust_installation(home, row, server) as box, httpx.Client(timeout=5) as client:
        began, number = time.time(), 0
        while time.time() - began < seconds:
            DISTURBANCES[number % len(DISTURBANCES)](box)
            number += 1
            box.publish()
            time.sleep(DISTURBANCE_SECONDS)
        published = (number + 1) * 2
        box.wait_for_delivered(published, seconds=90)
        is_ready = _wait(lambda: box.page("readyz", client)[0] == 200, HEALED_SECONDS)
        told = "SELECT name, subject, text FROM alerts WHERE notified_at IS NOT NULL OR resolved_at IS NULL"
        rules = server.fired(row.name) if server is not None else []
        return QuietRun(number, box.delivered(), [one.title for one in box.messages()], box.rows(told), rules, is_ready)


DISTURBANCE_SECONDS = 8.0


def _kill_and_start(box: TrustInstallation) -> None:
    box.end_worker(signal.SIGKILL)
    box.start_worker()


def _restart_sidecar(box: TrustInstallation) -> None:
    box.sidecar.terminate()
    box.sidecar.wait(30)
    box.start_sidecar()


def _restart_receiver(box: TrustInstallation) -> None:
    box.receiver.stop()
    time.sleep(3)
    box.receiver.start_again()


DISTURBANCES: tuple[Callable[[TrustInstallation], None], ...] = (
    TrustInstallation.restart_worker,
    lambda box: box.reload(lambda config: config["csi"].update(log_level="DEBUG")),
    _kill_and_start,
    _restart_sidecar,
    _restart_receiver,
)


def run_remedy(box: TrustInstallation, row: Injection, message: Message | None) -> list[str]:
    """Run the command of the message as the operator would copy it."""
    assert row.remedy is not None
    commands = [text for text in (message.commands if message else []) if re.search(row.remedy, text)]
    if not commands:
        return [f"the message names no command like {row.remedy!r}"]
    done = box.csi(*commands[0].removeprefix("csi ").split())
    return [] if done.returncode == 0 else [f"{commands[0]} exits {done.returncode}: {done.stderr.strip()[-200:]}"]


def faults_of(row: Injection, seen: Observation) -> list[str]:
    """What the row asks for and was not seen."""
    found = [
        f"/{name} stayed 200"
        for name, has_to in (("readyz", row.readyz), ("livez", row.livez))
        if has_to and getattr(seen, name) is None
    ]
    if row.doctor is not None and seen.doctor is None:
        found.append(f"csi doctor does not say {row.doctor!r}")
    if seen.metric is None and row.problem:
        found.append(f"no csi_problems{{problem={row.problem!r}}}")
    if seen.alerts == {} and row.notifies:
        found.append("no alert of Prometheus")
    if row.livez and row.build.pings and seen.heartbeat is None:
        found.append("the heartbeat URL is still pinged")
    if not row.notifies:
        return found
    if seen.notification is None:
        return [*found, f"no notification within {row.limit:.0f} s"]
    if seen.notification > row.limit:
        found.append(f"notified after {seen.notification:.0f} s, limit {row.limit:.0f} s")
    if not any(word.lower() in seen.cause.lower() for word in row.cause.split("|")):
        found.append(f"cause without {row.cause!r}")
    expected = 1 if seen.resolved is None else 2
    if len(seen.titles) > expected:
        found.append(f"{len(seen.titles)} messages: {', '.join(seen.titles)}")
    return found


def _is_about(message: Message, problem: str) -> bool:
    return message.title.startswith(problem.replace("_", " "))


def _reasons(body: str) -> str:
    try:
        return "; ".join(json.loads(body).get("reasons", []))
    except ValueError:
        return ""


def _wait(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(CHECK_SECONDS)
    return bool(condition())
