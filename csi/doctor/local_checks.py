"""Checks of configuration, secrets, state directory, disk, SQLite, clock and database. No network."""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from csi.config.loader import LoadedConfig, require_delivery, require_queue
from csi.config.secrets import hide_password
from csi.config.settings import Settings, looks_like_postgres
from csi.doctor.finding import Finding
from csi.errors import ConfigError, StoreError
from csi.store import damage, database_faults, db

MIB = 1024 * 1024
LEAST_FREE = 100 * MIB
LITTLE_FREE = 1024 * MIB
OLDEST_SQLITE = (3, 35, 0)
"""The first version with RETURNING."""
FIXED_SQLITE = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
"""The first version of each release line without SQLite's bug in checkpoints by two connections at once."""
EARLIEST = 1_767_225_600.0
"""The start of 2026: a clock before that is wrong."""


def check_config(loaded: LoadedConfig) -> Iterator[Finding]:
    running = [source for source in loaded.settings.sources.values() if source.enabled]
    watches = sum(len(source.watches) for source in running)
    yield Finding("config", "ok", f"{loaded.path} is good: {len(running)} sources, {watches} watches in it")
    for warning in loaded.warnings:
        yield Finding("config", "warn", warning, f"change it in {loaded.path}, then `csi config check`")


def check_secrets(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    try:
        require_delivery(settings)
        require_queue(settings)
        yield Finding("secrets", "ok", "the receiver's address and secret are set")
    except ConfigError as error:
        remedy = "set what is missing in the environment or the env file, and start the processes again"
        yield Finding("secrets", "fail", str(error), remedy)
    for name, place in env.items():
        if name == "CSI_ENV_FILE" or (name.endswith("_FILE") and name.startswith(("CSI_", "YOUTUBE_"))):
            # A file with secrets in it. Systemd and container engines guard their own folders.
            path = Path(place)
            if path.is_file() and path.stat().st_mode & 0o007 and not path.is_relative_to("/run"):
                text = f"{path} (named by {name}) holds secrets, and every user of this machine can read it"
                yield Finding("secrets", "fail", text, f"`chmod o-rwx {path}`")


def check_state(settings: Settings) -> Iterator[Finding]:
    """The directory of database, queue and locks."""
    home = settings.csi.state_dir
    if not home.exists():
        parent = next(folder for folder in home.absolute().parents if folder.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("state", "ok", f"{home} does not exist yet; the worker creates it")
        else:
            remedy = f"make it for the user of the worker: `install -d -m 0700 {home}`; or set csi.state_dir"
            yield Finding("state", "fail", f"{home} does not exist, and this user may not create it", remedy)
        return
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        text = f"{home} is no directory that this user may write"
        yield Finding("state", "fail", text, "run as the user of the worker, or set csi.state_dir to another one")
        return
    faults = []
    if home.stat().st_mode & 0o077:
        text = f"{home} is open to other users of this machine"
        faults.append(Finding("state", "fail", text, f"`chmod 700 {home}`"))
    for path in sorted([*home.glob("*.db"), *home.glob("*.key")]):
        if path.stat().st_mode & 0o007:
            text = f"{path} is readable by every user of this machine"
            faults.append(Finding("state", "fail", text, f"`chmod 600 {path}`"))
    # A command that root typed in the wrong place leaves files that the worker cannot write.
    owner = home.stat().st_uid
    foreign = sorted(path.name for path in home.iterdir() if path.lstat().st_uid != owner)
    if foreign:
        text = f"files in {home} belong to another user than the directory: {', '.join(foreign[:5])}"
        faults.append(Finding("state", "fail", text, f"`chown -R --reference={home} {home}`"))
    yield from faults or [Finding("state", "ok", f"{home} is private and writable")]


def check_disk(settings: Settings) -> Iterator[Finding]:
    home = settings.csi.state_dir.absolute()
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    usage = shutil.disk_usage(place)
    left = f"{usage.free / MIB:,.0f} MiB of {usage.total / MIB:,.0f} are free at {place}"
    remedy = "make room: `csi prune --yes` removes what is older than its time; move logs and backups elsewhere"
    if usage.free < LEAST_FREE:
        yield Finding("disk", "fail", f"{left}: writing will fail soon", remedy)
    elif usage.free < min(LITTLE_FREE, usage.total // 20):
        yield Finding("disk", "warn", left, remedy)
    else:
        yield Finding("disk", "ok", left)


def check_sqlite(settings: Settings) -> Iterator[Finding]:
    if looks_like_postgres(settings.csi.database_url):
        yield Finding("sqlite", "skip", "the database is PostgreSQL")
        return
    version = sqlite3.sqlite_version_info
    name = f"SQLite {sqlite3.sqlite_version}"
    if version < OLDEST_SQLITE:
        yield Finding("sqlite", "fail", f"{name} is too old", "use a Python with SQLite 3.35 or newer")
    elif not is_mended(version):
        text = f"{name} has a rare fault when two connections write at a checkpoint (3.7.0 to 3.51.2)"
        yield Finding("sqlite", "warn", text, "update SQLite to 3.51.3, 3.50.7 or 3.44.6; until then keep backups")
    else:
        yield Finding("sqlite", "ok", name)


def is_mended(version: tuple[int, ...]) -> bool:
    newest = FIXED_SQLITE[0]
    return version >= newest or any(version[:2] == fixed[:2] and version >= fixed for fixed in FIXED_SQLITE)


def check_clock(now: float) -> Iterator[Finding]:
    if now < EARLIEST:
        text = "the clock of this machine is years behind: every signature is refused"
        yield Finding("clock", "fail", text, "set it by NTP: `timedatectl set-ntp true`")
    else:
        yield Finding("clock", "ok", "plausible; those of receiver and worker are compared where they are known")


def check_database(settings: Settings) -> Finding:
    """Whether the rows can be used as they are. Opens it, and makes nothing."""
    url, shown = settings.csi.database_url, hide_password(settings.csi.database_url)
    if not looks_like_postgres(url) and not Path(url).exists():
        remedy = "as the user of the worker: `csi db migrate`; the worker's first start makes it, too"
        return Finding("database", "fail", f"there is no database at {shown}", remedy)
    try:
        db.open_database(url)
        return check_schema(settings)
    except StoreError as error:
        return database_fault(settings, error)


def check_schema(settings: Settings) -> Finding:
    """Of the database that is open already. StoreError when it cannot be read."""
    url, shown = settings.csi.database_url, hide_password(settings.csi.database_url)
    missing = db.pending_migrations()
    if missing and not db.applied_migrations():
        fault = database_faults.EMPTIED
        return Finding("database", "fail", f"{shown}: {fault.text}, or no worker ever ran on it", fault.remedy)
    if missing:
        text = f"the schema of {shown} lacks {', '.join(missing)}"
        return Finding("database", "fail", text, "`csi db migrate`, or start the worker")
    if not looks_like_postgres(url) and (found := damage.find_damage(Path(url), settings.csi.state_dir)):
        return database_fault(settings, StoreError(f"the database {shown} is damaged: {found}"))
    size = "" if looks_like_postgres(url) else f" ({Path(url).stat().st_size / MIB:,.1f} MiB)"
    return Finding("database", "ok", f"{shown}{size}, schema up to date")


def database_fault(settings: Settings, error: Exception) -> Finding:
    """What a database error means, where the database is, and what to do about that."""
    url, fault = settings.csi.database_url, database_faults.identify(error)
    what = str(error) if isinstance(error, StoreError) else fault.text
    shown = hide_password(url)
    text = what if shown in what else f"{shown}: {what}"
    match fault.kind:
        case "locked" if not looks_like_postgres(url):
            remedy = f"find the process with `fuser -v {url}` and end it; processing resumes when the lock is released"
        case "damaged" if not looks_like_postgres(url):
            remedy = (
                f"stop worker and sidecar, move {url} with its -wal and -shm to another directory and keep them, "
                "put the last backup in its place, and start again; without a backup: `csi db repair`"
            )
        case "unusable":
            remedy = "check csi.database (CSI_DATABASE_URL), and that this user may use it; `csi db status` says more"
        case _:
            remedy = fault.remedy
    return Finding("database", "fail", text, remedy)
