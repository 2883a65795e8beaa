"""csi db: migrate, status, backup, copy."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import clock, runtime
from csi.admin import copy_to_postgres
from csi.cli.output import plural, progress
from csi.cli.terminal import table
from csi.config import settings
from csi.config.secrets import hide_password
from csi.store import db as database

if TYPE_CHECKING:
    from csi.admin.copy_to_postgres import CopyReport

_CONFIG = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="The configuration; default CSI_CONFIG_PATH."
)


_COPY = re.compile(r"csi-\d{8}T\d{6}Z\.db")


@click.group()
def db() -> None:
    """Migrate, inspect, back up and move the database."""


@db.command()
@_CONFIG
def migrate(config_path: Path | None) -> None:
    """Bring the schema up to date. Worker and sidecar do this by themselves at start."""
    _open(config_path)
    applied = database.migrate()
    click.echo(f"applied {', '.join(applied)}" if applied else "the schema is up to date")


@db.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(config_path: Path | None, as_json: bool) -> None:
    """Say where the database is, and which migrations it has."""
    where = _open(config_path)
    report = {
        "database": where,
        "applied": database.applied_migrations(),
        "pending": database.pending_migrations(),
    }
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"database  {report['database']}")
    click.echo(f"applied   {', '.join(report['applied']) or 'nothing'}")
    click.echo(f"pending   {', '.join(report['pending']) or 'nothing'}")


@db.command()
@_CONFIG
@click.option("--keep", type=click.IntRange(1), help="With a directory: remove all but this many of our copies there.")
@click.argument("target", type=click.Path(path_type=Path))
def backup(config_path: Path | None, keep: int | None, target: Path) -> None:
    """Write a consistent copy to TARGET while everything runs, and check it (SQLite only).

    In a directory the copy is named by the time. Nothing is ever overwritten.
    """
    if keep is not None and not target.is_dir():
        raise click.UsageError(f"--keep needs a directory, and {target} is none.")
    _open(config_path)
    copy = target / _copy_name() if target.is_dir() else target
    database.backup(copy)
    click.echo(f"wrote {copy} ({copy.stat().st_size:,} bytes), checked")
    for old in _copies(target)[:-keep] if keep else []:
        old.unlink()
        click.echo(f"removed {old}")


@db.command("copy")
@_CONFIG
@click.option("--to", "target", required=True, metavar="URL", help="An empty database: postgresql://USER@HOST/NAME.")
@click.option("--live", is_flag=True, help="Copy a snapshot while the worker runs; a run without this ends it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def copy_all(config_path: Path | None, target: str, live: bool, as_json: bool) -> None:
    """Copy the whole database into PostgreSQL, and compare both sides at the end.

    Whatever ends it, another run goes on: only what differs is written. The worker must not run, so that nothing is
    missing at the end; --live copies a snapshot meanwhile. Arguments are seen by everybody on this machine: leave the
    password to PGPASSWORD or ~/.pgpass.
    """
    if not settings.looks_like_postgres(target):
        raise click.UsageError("--to: expected postgresql://USER@HOST/NAME.")
    with _percents("copying and comparing") as notice:
        done = copy_to_postgres.copy_database(runtime.load_settings(config_path), target, live=live, notice=notice)
    _say_copied(done, hide_password(target), as_json=as_json)


@contextmanager
def _percents(label: str) -> Iterator[Callable[[int, int], None]]:
    shown = 0

    def notice(done: int, total: int) -> None:
        nonlocal shown
        now = 100 * done // max(total, 1)
        advance(now - shown)
        shown = now

    with progress(100, label) as advance:
        yield notice


def _say_copied(done: CopyReport, target: str, *, as_json: bool) -> None:
    if as_json:
        tables = [dataclasses.asdict(it) for it in done.tables]
        report = {"source": done.source, "target": target, "complete": done.complete, "mended_texts": done.mended}
        click.echo(json.dumps(report | {"tables": tables}))
        return
    rows = [[it.table, f"{it.rows:,}", f"{it.written:,}", f"{it.removed:,}", it.sha256[:16]] for it in done.tables]
    for line in table(("TABLE", "ROWS", "WRITTEN", "REMOVED", "SHA256"), rows):
        click.echo(line)
    if done.mended:
        click.echo(f"{plural(done.mended, 'text')} with NUL or broken UTF-8 have U+FFFD there instead", err=True)
    if done.complete:
        click.echo("the same on both sides; set csi.database (CSI_DATABASE_URL) to it and start the worker", err=True)
    else:
        click.echo("a snapshot is there; stop worker and sidecar, and run it again without --live", err=True)


def _copy_name() -> str:
    return f"csi-{re.sub('[-:]', '', clock.iso(clock.now()))}.db"


def _copies(directory: Path) -> list[Path]:
    """Those that this command named, oldest first."""
    return sorted(path for path in directory.iterdir() if _COPY.fullmatch(path.name))


def _open(config_path: Path | None) -> str:
    url = runtime.load_settings(config_path).csi.database_url
    database.open_database(url)
    return hide_password(url)
