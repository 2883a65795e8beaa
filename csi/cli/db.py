"""csi db: migrate, status, backup."""

import json
from pathlib import Path

import click

from csi.ingester.config_secrets import hide_password
from csi.runtime import load_settings
from csi.store import db as database

_CONFIG = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="The configuration; default CSI_CONFIG_PATH."
)


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
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
def backup(config_path: Path | None, target: Path) -> None:
    """Write a consistent copy to TARGET while everything runs (SQLite only)."""
    _open(config_path)
    database.backup(target)
    click.echo(f"wrote {target} ({target.stat().st_size:,} bytes)")


def _open(config_path: Path | None) -> str:
    url = load_settings(config_path).csi.database_url
    database.open_database(url)
    return hide_password(url)
