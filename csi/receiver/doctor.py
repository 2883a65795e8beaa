"""`csi receiver doctor`: check settings, database and disk, and a running receiver by its URL."""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

from csi.errors import NetError
from csi.ingester.signature import canonical, headers
from csi.logs import redact
from csi.net import Net
from csi.receiver.settings import ReceiverSettings
from csi.receiver.store import APPLICATION_ID, SCHEMA_VERSION

LOW_DISK_BYTES = 500 * 1024 * 1024
STRONG_SECRET_LENGTH = 32


@dataclass(frozen=True)
class ReceiverCheck:
    """One check and its result. `ill` means that a batch would not be stored."""

    what: str
    state: Literal["ok", "warn", "ill"]
    words: str


def examine(settings: ReceiverSettings, net: Net, url: str | None, now: float) -> list[ReceiverCheck]:
    """Read only: nothing is created, and a running receiver gets empty batches."""
    disabled = ReceiverCheck("ingest", "ill", "UA_SIGNALS_INGEST_ENABLED is 0: every batch is answered with 503")
    checks = [ReceiverCheck("ingest", "ok", "enabled") if settings.enabled else disabled]
    words, is_strong = "long enough", min(len(secret) for secret in settings.secrets) >= STRONG_SECRET_LENGTH
    if not is_strong:
        words = f"shorter than {STRONG_SECRET_LENGTH} characters: create a longer one with openssl rand -hex 32"
    checks.append(ReceiverCheck("secret", "ok" if is_strong else "warn", words))
    if settings.previous_secret == settings.secret:
        checks.append(ReceiverCheck("previous secret", "warn", "equal to the current one: remove it"))
    elif settings.previous_secret:
        words = "accepted beside the current one; remove it when every sender uses the current one"
        checks.append(ReceiverCheck("previous secret", "ok", words))
    checks += _check_database(settings.db_path)
    free = shutil.disk_usage(_existing(settings.db_path.parent)).free
    words = f"{free // (1024 * 1024):,} MB free"
    low = free < LOW_DISK_BYTES
    checks.append(ReceiverCheck("disk", "warn" if low else "ok", f"only {words}" if low else words))
    if url:
        for name, secret in zip(("the secret", "the previous secret"), settings.secrets, strict=False):
            checks.append(_send_signed(net, url, name, secret, settings.bearer_tokens[0], now))
        checks.append(_send_unsigned(net, url))
    return checks


def _check_database(path: Path) -> list[ReceiverCheck]:
    folder = _existing(path.parent)
    if not path.exists() and not (folder.is_dir() and os.access(folder, os.W_OK)):
        words = f"{path} cannot be created: {folder} is not a directory that this user may write"
        return [ReceiverCheck("database", "ill", words)]
    if not path.exists():
        return [ReceiverCheck("database", "ok", f"{path} will be created at the first start")]
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
            checks = [_check_schema(db, path)]
            result = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        return [ReceiverCheck("database", "ill", f"{path}: cannot be read: {error}")]
    words = "no damage found" if result == "ok" else f"damaged: {result}; restore a backup"
    checks.append(ReceiverCheck("integrity", "ok" if result == "ok" else "ill", words))
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        words = f"{path} is readable by other users ({mode:o}); the next start of the receiver restricts it"
        return [*checks, ReceiverCheck("permissions", "warn", words)]
    return [*checks, ReceiverCheck("permissions", "ok", f"{mode:o}")]


def _check_schema(db: sqlite3.Connection, path: Path) -> ReceiverCheck:
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if owner != APPLICATION_ID:
        return ReceiverCheck("database", "ill", f"{path} belongs to another program")
    if version > SCHEMA_VERSION:
        return ReceiverCheck("database", "ill", f"written by a newer csi (schema {version}); upgrade csi")
    count = db.execute("SELECT count(*) FROM signals").fetchone()[0]
    return ReceiverCheck("database", "ok", f"{count:,} signals, schema {version}")


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _send_signed(net: Net, url: str, name: str, secret: str, bearer: str, now: float) -> ReceiverCheck:
    what = f"signed with {name}"
    body = canonical({"csi_version": "1", "csi_instance_id": "doctor", "batch_id": "doctor", "events": []})
    sent = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json", **headers(secret, body, now=now)}
    try:
        response = net.post(url, body=body, headers=sent)
    except NetError as error:
        return ReceiverCheck(what, "ill", str(error))
    if response.status == 200:
        words = f"accepted in {response.elapsed * 1000:.0f} ms"
        with suppress(TypeError, ValueError):
            seconds = parsedate_to_datetime(response.headers.get("date", "")).timestamp() - now
            if abs(seconds) > 30:
                words += f"; its clock differs by {seconds:.0f} s"
        return ReceiverCheck(what, "ok", words)
    if response.status == 403:
        return ReceiverCheck(what, "ok", "verified; the instance `doctor` is not among the allowed instances")
    # Redacted before it is cut, since the response may repeat the secret that we sent.
    text = redact(response.body[:4000].decode("utf-8", "replace"))[:200]
    return ReceiverCheck(what, "ill", f"{response.status} {text}")


def _send_unsigned(net: Net, url: str) -> ReceiverCheck:
    try:
        response = net.post(url, body=b"{}", headers={"Content-Type": "application/json"})
    except NetError as error:
        return ReceiverCheck("unsigned", "ill", str(error))
    if response.status == 401:
        return ReceiverCheck("unsigned", "ok", "refused")
    return ReceiverCheck("unsigned", "ill", f"answered with {response.status} instead of 401: is this the ingest URL?")
