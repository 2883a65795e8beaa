"""Commands of an operator: reload, restore, logs, top, grouped help, colours, and what works before the first start."""

import json
import os
import re
import signal
import socket
import sqlite3
import sys
import time
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from csi.admin import backup_restore
from csi.cli import main, output, top
from csi.cli import reload as reload_command
from csi.cli.main import COMMANDS, GROUPS, cli
from csi.errors import ConfigError, CsiError, PortInUse, StoreError
from csi.runtime import open_runtime
from csi.store import db, reload_results
from csi.web.config_watch import ConfigWatch
from csi.web.shared_state import Sidecar
from tests.fakes.pages import ROOT
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver


def call(config: Path, *line: str, **env: str):
    base = {name: None for name in os.environ if name.startswith(("CSI_", "NO_COLOR"))}
    known = {"CSI_CONFIG_PATH": str(config), "CSI_UA_ENDPOINT": "http://127.0.0.1:9/x", "CSI_UA_SHARED_SECRET": SECRET}
    return CliRunner().invoke(cli, list(line), env=base | known | env)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    sources = {name: {"enabled": False} for name in ("youtube_playlist", "youtube_channel_rss")}
    path.write_text(yaml.safe_dump({"csi": {"state_dir": str(tmp_path / "state")}, "sources": sources}))
    return path


# ── help, colours, access ───────────────────────────────────────────────────────────────────────────────


def test_help_lists_every_command_once_in_its_group():
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    shown = CliRunner().invoke(cli, ["--help"]).output
    assert shown.index("Start:") < shown.index("Deliver:") < shown.index("The receiving side:")


def test_colours_are_for_terminals_without_no_color(monkeypatch):
    class Screen:
        def __init__(self, tty: bool) -> None:
            self.isatty = lambda: tty

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.is_color(Screen(True))
    assert not output.is_color(Screen(False))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.is_color(Screen(True))


def test_a_user_without_access_reads_a_sentence(monkeypatch, capsys):
    @click.command()
    def refuse() -> None:
        raise PermissionError(13, "Permission denied", "/var/lib/csi/csi.db")

    monkeypatch.setattr(main, "cli", refuse)
    monkeypatch.setattr(sys, "argv", ["csi"])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == StoreError.exit_code
    said = "csi: /var/lib/csi/csi.db: permission denied; run it as the user of the worker, or as root\n"
    assert capsys.readouterr().err == said


# ── before the first start ──────────────────────────────────────────────────────────────────────────────


def test_delivery_is_tested_before_there_is_a_database(config, tmp_path):
    with ScriptedReceiver() as ua:
        done = call(config, "delivery", "test", CSI_UA_ENDPOINT=ua.url)
        assert done.exit_code == 0, done.output
        assert "http 200" in done.output
        assert len(ua.requests) >= 1
    assert not (tmp_path / "state").exists()
    assert call(config, "delivery", "test").exit_code == 1


def test_a_wide_bind_without_a_token_is_a_warning(config):
    config.write_text(config.read_text() + "web: {host: 0.0.0.0}\n")
    done = call(config, "config", "check")
    assert done.exit_code == 0
    assert "web.host 0.0.0.0 can be reached from other machines" in done.output
    assert "can be reached" not in call(config, "config", "check", CSI_ADMIN_TOKEN="t" * 32).output


def test_tasks_dlq_lists_dead_letters(config):
    assert call(config, "db", "migrate").exit_code == 0
    assert call(config, "tasks", "dlq", "--json").output == call(config, "dlq", "list", "--json").output


def test_run_receiver_says_what_is_in_its_way(config):
    with socket.create_server(("127.0.0.1", 0)) as door:
        taken = f"http://127.0.0.1:{door.getsockname()[1]}/api/v1/signals/ingest"
        done = call(config, "run", "--receiver", CSI_UA_ENDPOINT=taken)
    assert isinstance(done.exception, PortInUse)
    assert "if it is a receiver, leave out --receiver" in str(done.exception)
    elsewhere = call(config, "run", "--receiver", CSI_UA_ENDPOINT="https://example.org/in")
    assert isinstance(elsewhere.exception, ConfigError)
    assert "our receiver on this machine cannot be https://example.org/in" in str(elsewhere.exception)


def test_a_login_link_needs_a_token(config, tmp_path):
    assert "set CSI_ADMIN_TOKEN" in str(call(config, "login-link").exception)
    (tmp_path / "state").mkdir()
    done = call(
        config, "login-link", "--url", "https://csi.example.org/", CSI_ADMIN_TOKEN="a-token-0123456789-of-the-test"
    )
    assert re.fullmatch(r"https://csi\.example\.org/login\?key=[\w-]{43}\n", done.output), done.output
    assert (tmp_path / "state" / "sidecar-login-link").stat().st_mode & 0o777 == 0o600


def test_make_help_lists_every_target():
    text = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())
    assert targets == set(re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE))


# ── restore ─────────────────────────────────────────────────────────────────────────────────────────────


def watches(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        return [row[0] for row in connection.execute("SELECT ref FROM watches ORDER BY ref")]


def add_watch(path: Path, ref: str) -> None:
    row = (
        ref,
        "feed",
        "standard",
        900,
        '"all"',
        "command",
        "active",
        0,
        0,
        "",
        "[]",
        0,
        "healthy",
        "{}",
        "feed",
        1,
        0,
        0,
    )
    columns = (
        "ref, source, tier, interval_seconds, first_poll, origin, state, next_poll_at, wake_at, created_at, tags_json, "
        "errors, health, filters_json, via, pages, empty_reads, reads"
    )
    with sqlite3.connect(path) as connection:
        connection.execute(f"INSERT INTO watches ({columns}) VALUES ({', '.join('?' * len(row))})", row)


def test_a_backup_takes_the_place_of_the_database_which_is_kept(config, tmp_path):
    state = tmp_path / "state"
    assert call(config, "db", "migrate").exit_code == 0
    add_watch(state / "csi.db", "before")
    assert call(config, "db", "backup", str(tmp_path / "backup.db")).exit_code == 0
    add_watch(state / "csi.db", "later")
    looked = call(config, "db", "restore", "--dry-run", str(tmp_path / "backup.db"))
    assert looked.exit_code == 0, (looked.output, looked.exception)
    assert watches(state / "csi.db") == ["before", "later"]
    done = call(config, "db", "restore", "--yes", str(tmp_path / "backup.db"))
    assert done.exit_code == 0, (done.output, done.exception)
    assert watches(state / "csi.db") == ["before"]
    (kept,) = (path for path in state.glob("csi.db.before-restore-*") if path.name.endswith("Z"))
    assert watches(kept) == ["before", "later"]
    assert not list(state.glob("*.restored*"))
    assert call(config, "status").exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose files would lock the service out")
def test_files_that_commands_of_root_write_belong_to_the_owner_of_their_directory(config, tmp_path):
    service, state, backups = 65534, tmp_path / "state", tmp_path / "backups"
    for folder in (state, backups):
        folder.mkdir()
        os.chown(folder, service, service)
    lines = (
        ("db", "migrate"),
        ("destinations", "add", "second", "http://127.0.0.1:9/"),
        ("login-link",),
        ("db", "backup", str(backups)),
    )
    for line in lines:
        done = call(config, *line, CSI_ADMIN_TOKEN="a-token-0123456789-of-the-test")
        assert done.exit_code == 0, (line, done.output, done.exception)
    (copy,) = backups.iterdir()
    done = call(config, "db", "restore", "--yes", str(copy))
    assert done.exit_code == 0, (done.output, done.exception)
    files = [*state.rglob("*"), copy]
    assert {"csi.db", "sidecar-login-link", "worker.lock"} <= {path.name for path in files}
    assert [path.name for path in files if path.stat().st_uid != service] == []


@pytest.mark.parametrize(
    ("content", "said"), [(b"not a database" * 100, "cannot be read|is damaged"), (b"", "not a database of CSI")]
)
def test_what_is_no_backup_changes_nothing(config, tmp_path, content, said):
    assert call(config, "db", "migrate").exit_code == 0
    add_watch(tmp_path / "state" / "csi.db", "mine")
    (tmp_path / "wrong.db").write_bytes(content)
    done = call(config, "db", "restore", "--yes", str(tmp_path / "wrong.db"))
    assert isinstance(done.exception, StoreError), done.output
    assert re.search(said, str(done.exception))
    same = call(config, "db", "restore", "--yes", str(tmp_path / "state" / "csi.db"))
    assert "is the database itself" in str(same.exception)
    assert watches(tmp_path / "state" / "csi.db") == ["mine"]


def test_a_running_worker_refuses_a_restore(config, tmp_path):
    assert call(config, "db", "migrate").exit_code == 0
    assert call(config, "db", "backup", str(tmp_path / "backup.db")).exit_code == 0
    with backup_restore.without_worker(tmp_path / "state", "test"):
        done = call(config, "db", "restore", "--yes", str(tmp_path / "backup.db"))
    assert isinstance(done.exception, CsiError)
    assert backup_restore.REMEDY in str(done.exception)


# ── reload ──────────────────────────────────────────────────────────────────────────────────────────────


def test_reload_waits_for_the_answer_of_the_worker(config, monkeypatch):
    assert call(config, "db", "migrate").exit_code == 0
    done = call(config, "reload")
    assert "no worker runs" in str(done.exception)
    answers = iter([None, "sources.feed: wrong"])

    def answer(pid: int, number: int) -> None:
        assert (pid, number) == (4711, signal.SIGHUP)
        with db.writing():
            reload_results.note(time.time(), next(answers))

    monkeypatch.setattr(reload_command.worker_lock, "lock_holder", lambda _: 4711)
    monkeypatch.setattr(reload_command, "_is_worker", lambda _: False)
    assert "cannot see it" in str(call(config, "reload").exception)
    monkeypatch.setattr(reload_command, "_is_worker", lambda _: True)
    monkeypatch.setattr(os, "kill", answer)
    good = call(config, "reload")
    assert good.exit_code == 0, (good.output, good.exception)
    assert "the worker uses the changed configuration" in good.output
    bad = call(config, "reload")
    assert isinstance(bad.exception, ConfigError)
    assert "sources.feed: wrong" in str(bad.exception)


def test_an_invalid_file_is_refused_before_the_worker_is_asked(config):
    config.write_text("csi: [")
    assert isinstance(call(config, "reload").exception, ConfigError)


def test_the_sidecar_takes_a_changed_file_and_keeps_the_old_one_over_an_invalid_one(config, monkeypatch):
    env = {"CSI_CONFIG_PATH": str(config), "CSI_UA_ENDPOINT": "http://127.0.0.1:9/x", "CSI_UA_SHARED_SECRET": SECRET}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    sidecar = Sidecar(open_runtime)
    watch = ConfigWatch(sidecar)
    before = sidecar.runtime()
    watch.run_round()
    assert sidecar.runtime() is before
    text = config.read_text()
    config.write_text(text + "features: {dashboard: false}\nweb: {port: 1234}\n")
    watch.run_round()
    assert sidecar.runtime().settings.features.dashboard is False
    assert sidecar.runtime().settings.web.port != 1234, "that needs a restart"
    config.write_text("csi: [")
    watch.run_round()
    assert sidecar.runtime().settings.features.dashboard is False
    config.write_text(text)
    watch.run_round()
    assert sidecar.runtime().settings.features.dashboard is True
    sidecar.close()


# ── logs and top ────────────────────────────────────────────────────────────────────────────────────────


def test_logs_are_readable_and_filtered(config, tmp_path):
    facts = {"timestamp": "2026-01-01T00:00:00Z", "level": "INFO", "message": "batch delivered", "tier": "urgent"}
    wrong = facts | {"level": "ERROR", "message": "bad\x1b[31m", "event_id": "e1"}
    lines = [json.dumps(facts), json.dumps(wrong), "Traceback (most recent call last):"]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    every = call(config, "logs", str(tmp_path / "log")).output.splitlines()
    assert every[0] == "2026-01-01T00:00:00Z INFO     batch delivered  tier=urgent"
    assert every[1] == r"2026-01-01T00:00:00Z ERROR    bad\x1b[31m  tier=urgent event_id=e1"
    assert every[2] == lines[2]
    errors = call(config, "logs", "--level", "ERROR", "--grep", "E1", str(tmp_path / "log")).output
    assert errors.count("\n") == 1
    assert "is not a file" in str(call(config, "logs", str(tmp_path / "absent")).exception)


def test_without_a_journal_logs_says_what_to_do(config, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no journal on this machine" in str(call(config, "logs").exception)


def test_a_journal_without_our_units_is_a_sentence(config, tmp_path, monkeypatch):
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\necho 'Failed to add filter for units: No data available' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert "csi run 2>&1 | csi logs -" in str(call(config, "logs").exception)


def test_the_keys_of_top():
    class Row:
        event_id = "event-2"

    state = top.TopState(events=(Row(), Row()))  # type: ignore[arg-type]
    for key in ("/", "c", "a", "x", "\x7f", "t", "\r"):
        state = top.after_key(state, key)
    assert (state.filter, state.typed) == ("cat", None)
    state = top.after_key(top.after_key(top.after_key(state, "j"), "j"), "\x1b[A")
    assert state.chosen == 0
    state = top.after_key(state, "\r")
    assert state.shown == "event-2"
    state = top.after_key(state, "\x1b")
    assert state.shown is None
    assert top.after_key(state, "\x1b").filter == ""
    assert top.after_key(state, "q").is_over
