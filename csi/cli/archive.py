"""`csi archive`: old statistics and jobs in archive files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from csi import logs
from csi.catalog import archive_files, catalog_retention
from csi.cli.command import config_option, dry_run_option, installed, json_option, yes_option
from csi.cli.output import confirm, echo_json, echo_table, iso, stamp
from csi.store.catalog import archives


@click.group()
def archive() -> None:
    """Move old catalogue rows into archive files, show them, and restore them."""


@archive.command("run")
@yes_option
@dry_run_option
@config_option
@json_option
def run_now(yes: bool, dry_run: bool, config_path: Path | None, as_json: bool) -> None:
    """Archive rows that are past their retention now, without waiting for the hourly run."""
    with installed(config_path) as rt:
        if not dry_run:
            confirm(f"Move old catalogue rows into files in {archive_files.folder(rt)}?", yes=yes)
        done = catalog_retention.survey(rt) if dry_run else catalog_retention.archive_old_rows(rt)
    if as_json:
        echo_json({"rows": done.rows, "total": done.total, "dry_run": dry_run})
        return
    for word, count in done.rows.items():
        click.echo(f"{'would be ' if dry_run else ''}{word}: {count:,}")
    if not done.total:
        click.echo("no row is past its retention")


@archive.command("list")
@config_option
@json_option
def list_files(config_path: Path | None, as_json: bool) -> None:
    """List the archive files, and until when restored rows are kept."""
    with installed(config_path) as rt:
        rows, where = archives.every(), archive_files.folder(rt)
    if as_json:
        times = [{"written_at": iso(row.written_at), "kept_until": iso(row.kept_until)} for row in rows]
        echo_json({"folder": str(where), "archives": [vars(row) | at for row, at in zip(rows, times, strict=True)]})
        return
    cells = [[r.name, f"{r.rows:,}", f"{r.bytes:,}", stamp(r.written_at), stamp(r.kept_until)] for r in rows]
    echo_table(("NAME", "ROWS", "BYTES", "WRITTEN", "RESTORED UNTIL"), cells)
    click.echo(f"{len(rows)} files in {where}", err=True)


@archive.command()
@click.argument("name")
@config_option
def show(name: str, config_path: Path | None) -> None:
    """Print the rows of a file, one JSON object per line, without restoring them."""
    with installed(config_path) as rt:
        book = archives.find(name)
        if book is None:
            raise archive_files.ArchiveError(f"there is no archive {name[:80]!r}; see `csi archive list`")
        for row in archive_files.read(rt, book):
            error = {"error_message": logs.redact(row["error_message"])} if row.get("error_message") else {}
            click.echo(json.dumps(row | error))


@archive.command()
@click.argument("name")
@click.option("--keep", "days", type=click.IntRange(1, 3650), default=7, show_default=True, help="Days to keep them.")
@config_option
@json_option
def restore(name: str, days: int, config_path: Path | None, as_json: bool) -> None:
    """Copy the rows of a file back into their table; after --keep days they are archived again."""
    with installed(config_path) as rt:
        done = archive_files.restore(rt, name, keep_days=days)
    if as_json:
        echo_json({"name": done.name, "rows": done.rows, "kept_until": iso(done.kept_until)})
        return
    click.echo(f"restored {done.rows:,} rows of {done.name}, kept until {stamp(done.kept_until)}")
