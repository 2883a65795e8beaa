"""What is wrong with a receiver, before a sender finds out: settings, database, disk, and a running one by its URL."""

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

from csi.errors import NetError
from csi.ingester.signature import canonical, headers
from csi.logs import redact
from csi.net import HttpResponse, Net
from csi.receiver.settings import ReceiverSettings
from csi.receiver.store import APPLICATION_ID, SCHEMA_VERSION

LITTLE = 500 * 1024 * 1024
STRONG = 32


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: Literal["ok", "warn", "ill"]
    words: str


def examine(settings: ReceiverSettings, net: Net, url: str | None, now: float) -> list[Finding]:
    """Looks only: nothing is created, and a running receiver gets empty batches."""
    found = [_switch(settings), *_secrets(settings), *_database(settings.db_path), _disk(settings.db_path)]
    if url:
        names = ["the secret", "the previous secret"]
        for name, secret in zip(names, settings.secrets, strict=False):
            found.append(_ask(net, url, name, secret, settings.bearer_tokens[0], now))
        found.append(_ask_unsigned(net, url))
    return found


def _switch(settings: ReceiverSettings) -> Finding:
    if settings.enabled:
        return Finding("ingest", "ok", "enabled")
    return Finding("ingest", "ill", "UA_SIGNALS_INGEST_ENABLED is 0: every batch is answered with 503")


def _secrets(settings: ReceiverSettings) -> list[Finding]:
    short = min(len(secret) for secret in settings.secrets) < STRONG
    words = f"shorter than {STRONG} characters: openssl rand -hex 32 makes a better one" if short else "long enough"
    found = [Finding("secret", "warn" if short else "ok", words)]
    if settings.previous_secret == settings.secret:
        found.append(Finding("previous secret", "warn", "the same as the current one: it can go"))
    elif settings.previous_secret:
        found.append(Finding("previous secret", "ok", "accepted beside the current one; remove it when senders moved"))
    return found


def _database(path: Path) -> list[Finding]:
    folder = _existing(path.parent)
    if not path.exists() and not (folder.is_dir() and os.access(folder, os.W_OK)):
        return [Finding("database", "ill", f"{path} cannot be made: {folder} is no directory that this user may write")]
    if not path.exists():
        return [Finding("database", "ok", f"{path} will be made at the first start")]
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
            return [_schema(db, path), _sound(db), _mode(path)]
    except sqlite3.Error as error:
        return [Finding("database", "ill", f"{path}: cannot be read: {error}")]


def _schema(db: sqlite3.Connection, path: Path) -> Finding:
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if owner != APPLICATION_ID:
        return Finding("database", "ill", f"{path} belongs to another program")
    if version > SCHEMA_VERSION:
        return Finding("database", "ill", f"written by a newer csi (schema {version}); upgrade csi")
    count = db.execute("SELECT count(*) FROM signals").fetchone()[0]
    return Finding("database", "ok", f"{count:,} signals, schema {version}")


def _sound(db: sqlite3.Connection) -> Finding:
    answer = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer == "ok":
        return Finding("integrity", "ok", "sound")
    return Finding("integrity", "ill", f"damaged: {answer}; restore a backup")


def _mode(path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return Finding("permissions", "warn", f"{path} is open to others ({mode:o}); a start of the receiver closes it")
    return Finding("permissions", "ok", f"{mode:o}")


def _disk(path: Path) -> Finding:
    free = shutil.disk_usage(_existing(path.parent)).free
    words = f"{free // (1024 * 1024):,} MB free"
    return Finding("disk", "ok", words) if free >= LITTLE else Finding("disk", "warn", f"only {words}")


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _ask(net: Net, url: str, name: str, secret: str, bearer: str, now: float) -> Finding:
    body = canonical({"csi_version": "1", "csi_instance_id": "doctor", "batch_id": "doctor", "events": []})
    sent = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json", **headers(secret, body, now=now)}
    try:
        answer = net.post(url, body=body, headers=sent)
    except NetError as error:
        return Finding(f"signed with {name}", "ill", str(error))
    if answer.status == 200:
        return Finding(f"signed with {name}", "ok", f"accepted in {answer.elapsed * 1000:.0f} ms{_clock(answer, now)}")
    if answer.status == 403:
        return Finding(f"signed with {name}", "ok", "verified; the instance `doctor` is not on its list")
    return Finding(f"signed with {name}", "ill", f"{answer.status} {_said(answer)}")


def _said(answer: HttpResponse) -> str:
    """The beginning of its words. Masked before it is cut: it may send back what we sent."""
    return redact(answer.body[:4000].decode("utf-8", "replace"))[:200]


def _clock(answer: HttpResponse, now: float) -> str:
    try:
        off = parsedate_to_datetime(answer.headers.get("date", "")).timestamp() - now
    except (TypeError, ValueError):
        return ""
    return f"; its clock differs by {off:.0f} s" if abs(off) > 30 else ""


def _ask_unsigned(net: Net, url: str) -> Finding:
    try:
        answer = net.post(url, body=b"{}", headers={"Content-Type": "application/json"})
    except NetError as error:
        return Finding("unsigned", "ill", str(error))
    if answer.status == 401:
        return Finding("unsigned", "ok", "refused")
    return Finding("unsigned", "ill", f"answered with {answer.status} instead of 401: is this the ingest URL?")
