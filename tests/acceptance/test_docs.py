"""The documentation as an operator uses it: every shell block is run against a real installation, or says why not.

A block that is not run carries `# needs a real host: why` on its first line. One that begins with `# with worker and
sidecar stopped` is run so. Paths and ports of a server stand for those of the temporary installation.
"""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.pages import PAGES, ROOT, Block, blocks, codes, rows, section
from tests.fakes.scripted_receiver import ScriptedReceiver, accept, json_reply
from tests.rigs.processes import CONSUMER, Installation, installation

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
RUNBOOK = ROOT / "ops" / "runbook.md"
TOOLS = ("bash", "curl", "sqlite3", "openssl")
REAL_HOST = re.compile(r"# needs a real host: \w.{8,}")
STOPPED = "# with worker and sidecar stopped"
BY_CI = {"README.md": ("make demo", "make test")}
"""CI runs `make test`, and `csi demo` is tests/acceptance/test_demo.py."""


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def is_run(block: Block) -> bool:
    """Everything is, but for what says that it cannot be, and what CI runs itself."""
    commands = BY_CI.get(str(block.page.relative_to(ROOT)), ())
    lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith("#")]
    return not (REAL_HOST.match(block.first_line) or all(line.startswith(commands) for line in lines))


class Host:
    """An installation with worker and sidecar, and a shell on it."""

    def __init__(self, box: Installation) -> None:
        self.box, self.port = box, free_port()
        self.tmp, self.etc, self.backups = (box.home / name for name in ("tmp", "etc", "backups"))
        for folder in (self.tmp, self.etc, self.backups):
            folder.mkdir()
        self.running: list[subprocess.Popen[bytes]] = []
        (self.etc / "env").write_text("".join(f"{name}={value}\n" for name, value in self.ours.items()))

    @property
    def ours(self) -> dict[str, str]:
        names = ("CSI_CONFIG_PATH", "CSI_UA_ENDPOINT", "CSI_UA_SHARED_SECRET", "YOUTUBE_API_KEY")
        return {name: self.box.env[name] for name in names} | {"CSI_ADMIN_TOKEN": "admin-token-of-the-test"}

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in self.box.env.items() if name != "PORT"}
        receiver = {"UA_SIGNALS_INGEST_SHARED_SECRET": self.box.env["CSI_UA_SHARED_SECRET"]}
        return kept | self.ours | receiver | {"PATH": f"{BIN}:{os.environ['PATH']}", "TMPDIR": str(self.tmp)}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        started = len(self.box.logged("tasks.worker", "watches"))
        self.running = [
            self.box.start(),
            self.box.start(sys.executable, "-m", "csi.main", **self.ours, PORT=str(self.port)),
        ]
        # Not `/readyz`: pages add channels that the fake does not know, and their source is then not ready.
        self.box.wait_for(
            lambda: self.answers("/healthz") and len(self.box.logged("tasks.worker", "watches")) > started
        )

    def answers(self, path: str) -> bool:
        try:
            return httpx.get(f"{self.url}{path}").status_code == 200
        except httpx.TransportError:
            return False

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Worker and sidecar rest while the block lasts."""
        for process in self.running:
            process.terminate()
        # A worker that has just started may be ended by the signal: Huey does not handle it yet.
        assert {process.wait(30) for process in self.running} <= {0, -signal.SIGTERM}
        try:
            yield
        finally:
            self.start()

    def here(self, text: str, *, is_readme: bool) -> str:
        """The block with this installation's paths and ports."""
        places = {
            "/var/lib/csi-receiver": self.box.home,
            "/var/lib/csi": self.box.state,
            "/var/backups/csi": self.backups,
            "/etc/csi": self.etc,
            "/tmp": self.tmp,
            # Under honcho, as the README starts it, the sidecar has another port than by itself.
            f"http://127.0.0.1:{5100 if is_readme else 8091}": self.url,
            "http://127.0.0.1:8090": self.box.ua_url.partition("/api/")[0],
        }
        pattern = "|".join(map(re.escape, places))
        return re.sub(rf"({pattern})(?![\w-])", lambda match: str(places[match[1]]), text)


class Shell:
    """A terminal in which one page is worked through: variables and functions last from block to block."""

    def __init__(self, host: Host, page: Path) -> None:
        self.host, self.page = host, page
        self.home = Path(tempfile.mkdtemp(prefix=page.stem, dir=host.box.home))
        self.memory = self.home / "memory.sh"
        self.memory.touch()
        self._furnish()

    def run(self, block: Block) -> str:
        """What it prints. A command that fails fails the test."""
        end = f"trap '{{ declare -f; export -p; }} > {self.memory}' EXIT"
        text = self.host.here(block.text, is_readme=self.page.name == "README.md")
        script = f"set -euo pipefail\n. {self.memory}\n{end}\n{text}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.home, env=self.host.env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{block.place}\n{block.text}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr + done.stdout
        return done.stdout

    def _furnish(self) -> None:
        """What the README's reader has at hand: a checkout with its .venv, and the config of step 1."""
        (self.home / ".venv" / "bin").mkdir(parents=True)
        for name in ("csi", "python"):
            (self.home / ".venv" / "bin" / name).symlink_to(BIN / name)
        # `honcho start` does not end, and would poll the real YouTube: here it says whether the Procfile is good.
        honcho = self.home / ".venv" / "bin" / "honcho"
        honcho.write_text(f'#!/bin/sh\n[ "$1" = start ] && exec {BIN}/honcho check\n')
        honcho.chmod(0o755)
        shutil.copy(ROOT / "Procfile", self.home)
        for block in blocks(self.page, "yaml")[:1]:
            (self.home / "config.yaml").write_text(block.text)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Two events delivered, and one dead because the receiver refused it."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the pages' commands need {', '.join(missing)}; install it to run this")
    with installation(tmp_path_factory.mktemp("host")) as box:
        built = Host(box)
        refuse_one(built)
        box.yt.add(box.yt.playlists[1], "Über 🚀")
        box.yt.upload(box.yt.channels[0], "On the channel")
        built.start()
        box.wait_for_delivered(2)
        yield built


def refuse_one(host: Host) -> None:
    box, real = host.box, host.box.ua_url
    box.yt.add(box.yt.playlists[0], "Refused")
    with ScriptedReceiver(then=lambda request: json_reply(422) if request.events else accept(request)) as ua:
        box.ua_url = ua.url
        worker = box.start()
        box.wait_for(lambda: box.rows("SELECT 1 FROM dead_letter WHERE cause = 'event'"))
        worker.terminate()
        worker.wait(30)
    box.ua_url = real


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_works(host: Host, page: Path) -> None:
    shell, output = Shell(host, page), ""
    for block in blocks(page):
        if block.language == "json" and page.name == "operate.md":
            assert shape(last_json(output)) == shape(json.loads(block.text)), f"{block.place} is not like\n{output}"
        elif block.first_line == STOPPED:
            with host.stopped():
                output = shell.run(block)
        elif block.language == "sh" and is_run(block):
            output = shell.run(block)


def last_json(text: str) -> Any:
    decoder, at, found = json.JSONDecoder(), 0, None
    while at < len(text):
        found, at = decoder.raw_decode(text, at)
        at = len(text) - len(text[at:].lstrip())
    return found


def shape(value: Any) -> Any:
    """Keys at every level; values may differ."""
    return {key: shape(inner) for key, inner in value.items()} if isinstance(value, dict) else None


def test_most_blocks_are_run() -> None:
    everything = [block for page in PAGES for block in blocks(page, "sh")]
    run = [block for block in everything if is_run(block)]
    assert len(run) >= 70
    assert len(everything) - len(run) <= 28


def runbook_block(word: str) -> Block:
    return next(block for block in blocks(RUNBOOK, "sh") if word in block.text)


def test_what_the_receiver_refused_is_sent_again_by_the_runbook(host: Host) -> None:
    """By its page as a whole, or here, whichever comes first."""
    Shell(host, RUNBOOK).run(runbook_block("csi dlq replay"))
    host.box.wait_for(
        lambda: host.box.rows("SELECT result FROM dead_letter WHERE state = 'replayed'") == [("delivered",)]
    )


def test_pruning_by_hand_deletes_what_is_old_and_nothing_else(host: Host) -> None:
    total, known = (host.box.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("events", "dedupe_keys"))
    with host.stopped():
        make_old(host.box.state / "csi.db")
        Shell(host, RUNBOOK).run(runbook_block("VACUUM"))
    assert host.box.rows("SELECT count(*) FROM events") == [(total - 1,)]
    assert host.box.rows("SELECT count(*) FROM dedupe_keys") == [(known,)]
    assert host.box.rows("SELECT count(*) FROM batches WHERE created_at < 1000") == [(0,)]


def make_old(path: Path) -> None:
    """One delivered event, its batches and their attempts, from long ago."""
    with sqlite3.connect(path) as db:
        ((event,),) = db.execute("SELECT min(id) FROM events WHERE state = 'delivered'")
        travelled = f"IN (SELECT batch_id FROM batch_events WHERE event_pk = {event})"
        db.execute("UPDATE events SET delivered_at = 100 WHERE id = ?", [event])
        db.execute(f"UPDATE batches SET created_at = 100, settled_at = 100 WHERE id {travelled}")
        db.execute(f"UPDATE delivery_attempts SET started_at = 100 WHERE batch_id {travelled}")
    db.close()


def test_new_items_still_arrive_after_everything_that_was_typed(host: Host) -> None:
    video = host.box.yt.add(host.box.yt.playlists[1], "After all")
    query = f"SELECT state FROM events WHERE event_id LIKE '%:{video}:%'"
    host.box.wait_for(lambda: host.box.rows(query) == [("delivered",)], seconds=60)


def test_the_metrics_are_those_in_the_table(host: Host) -> None:
    page = httpx.get(f"{host.url}/metrics").text
    real = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    table = [cells for cells in rows((ROOT / "docs" / "metrics.md").read_text()) if len(cells) == 4]
    table = [cells for cells in table if not cells[0].startswith("`csi_processing_")]  # those are the receiver's
    assert {name: cells[1] for cells in table for name in codes(cells[0])} == real
    for cells in table:
        labels = set(re.findall(r'[{,](\w+)="', "".join(re.findall(rf"^{codes(cells[0])[0]}.*", page, re.MULTILINE))))
        assert labels - {"le"} == set(codes(cells[2])), cells[0]


def test_log_lines_have_the_documented_fields(host: Host) -> None:
    always = {name for cells in rows(section(ROOT / "docs" / "operate.md", "Logs")) for name in codes(cells[0])}
    always -= {"error", "stack_trace"}
    lines = [json.loads(line) for line in host.box.log.read_text().splitlines()]
    assert lines
    assert all(always <= line.keys() for line in lines)


def test_the_procfile_under_honcho_and_its_port(host: Host, tmp_path: Path) -> None:
    """operate.md: honcho's PORT wins, and the second process gets the base and 100 (5000 by default: 5100)."""
    port = free_port()
    env = host.env | {"CSI_STATE_DIR": str(tmp_path / "state"), "PORT": str(port - 100)}
    command = [BIN / "honcho", "start", "-d", ROOT, "worker", "web"]
    with (tmp_path / "log").open("wb") as log:
        honcho = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            await_page(f"http://127.0.0.1:{port}/healthz", honcho, tmp_path / "log")
        finally:
            honcho.terminate()
            honcho.wait(30)


def await_page(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            assert httpx.get(url).status_code == 200
            return
        except httpx.TransportError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.mark.parametrize(
    ("code", "sentence", "env"),
    [
        (3, "csi: environment variable CSI_LOG_LEVEL: csi.log_level: expected", {"CSI_LOG_LEVEL": "LOUD"}),
        (4, "csi: delivery is not configured:", {"CSI_UA_ENDPOINT": ""}),
        (7, "csi: the directory", {"CSI_STATE_DIR": "/dev/null/csi"}),
        (7, "csi: the database ", {"CSI_DB_PATH": "no-database.txt"}),
        (7, "csi: the database ", {"CSI_DATABASE_URL": "postgresql://127.0.0.1:1/csi"}),
        (7, "csi: csi.queue:", {"CSI_QUEUE_URL": tempfile.mkdtemp()}),
        (7, "csi: csi.queue:", {"CSI_QUEUE_URL": "postgresql://csi:the-password@127.0.0.1:1/csi"}),
    ],
)
def test_a_worker_that_will_not_start_says_what_the_runbook_says(
    tmp_path: Path, code: int, sentence: str, env: dict[str, str]
) -> None:
    (tmp_path / "config.yaml").write_text("csi: {state_dir: state}\n")
    (tmp_path / "no-database.txt").write_text("a file of another program\n" * 60)
    given = {"CSI_UA_ENDPOINT": "http://127.0.0.1:1/", "CSI_UA_SHARED_SECRET": "csi-test-secret"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CSI_")}
    names = {"CSI_CONFIG_PATH": str(tmp_path / "config.yaml"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(CONSUMER, env=kept | given | names | env, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr, "the-password" in done.stderr) == (code, False, False)
    assert done.stderr.startswith(sentence)
    told = [text for cells in rows(section(RUNBOOK, "The worker will not start")) for text in codes(cells[1])]
    assert code == 3 or any(text.startswith(sentence) for text in told)
