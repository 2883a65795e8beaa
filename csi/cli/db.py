"""csi db: migrate, status, backup."""

import json
import re
from pathlib import Path

import click

from csi import clock
from csi.ingester.config_secrets import hide_password
from csi.runtime import load_settings
from csi.store import db as database

_CONFIG = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="The configuration; default CSI_CONFIG_PATH."
)


_COPY = re.compile(r"csi-\d{8}T\d{6}Z\.db")


@click.group()
def db() -> None:
    """Migrate, inspect and back up the database."""


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


def _copy_name() -> str:
    return f"csi-{re.sub('[-:]', '', clock.iso(clock.now()))}.db"


def _copies(directory: Path) -> list[Path]:
    """Those that this command named, oldest first."""
    return sorted(path for path in directory.iterdir() if _COPY.fullmatch(path.name))


def _open(config_path: Path | None) -> str:
    url = load_settings(config_path).csi.database_url
    database.open_database(url)
    return hide_password(url)
