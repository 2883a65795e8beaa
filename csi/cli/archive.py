"""`csi archive`: old statistics and jobs as files, and back."""

from __future__ import annotations

import json
from pathlib import Path

import click

from csi import logs
from csi.catalog import archive_files, catalog_retention
from csi.cli.installation import installed
from csi.cli.options import config_option, json_option
from csi.cli.output import confirm, echo_json, iso, stamp
from csi.cli.terminal import table
from csi.store.catalog import archives


@click.group()
def archive() -> None:
    """Put old rows of the catalogue into files, look at them, and bring them back."""


@archive.command("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be put away or removed, and change nothing.")
@config_option
@json_option
def run_now(yes: bool, dry_run: bool, config_path: Path | None, as_json: bool) -> None:
    """Put away now what is older than its time, instead of bit by bit every hour."""
    with installed(config_path) as rt:
        if not dry_run:
            confirm(f"Put away old rows of the catalogue, into {archive_files.folder(rt)}?", yes=yes)
        done = catalog_retention.survey(rt) if dry_run else catalog_retention.archive_old_rows(rt)
    if as_json:
        echo_json({"rows": done.rows, "total": done.total, "dry_run": dry_run})
        return
    for word, count in done.rows.items():
        click.echo(f"{'would be ' if dry_run else ''}{word}: {count:,}")
    if not done.total:
        click.echo("nothing is older than its time")


@archive.command("list")
@config_option
@json_option
def list_files(config_path: Path | None, as_json: bool) -> None:
    """Show the files, what is in them, and until when a restored one stays."""
    with installed(config_path) as rt:
        rows, where = archives.every(), archive_files.folder(rt)
    if as_json:
        times = [{"written_at": iso(row.written_at), "kept_until": iso(row.kept_until)} for row in rows]
        echo_json({"folder": str(where), "archives": [vars(row) | at for row, at in zip(rows, times, strict=True)]})
        return
    head = ("NAME", "ROWS", "BYTES", "WRITTEN", "RESTORED UNTIL")
    cells = [[r.name, f"{r.rows:,}", f"{r.bytes:,}", stamp(r.written_at), stamp(r.kept_until)] for r in rows]
    for line in table(head, cells):
        click.echo(line)
    click.echo(f"{len(rows)} files in {where}", err=True)


@archive.command()
@click.argument("name")
@config_option
def show(name: str, config_path: Path | None) -> None:
    """Print the rows of a file, one JSON object a line, without putting them back."""
    with installed(config_path) as rt:
        book = archives.find(name)
        if book is None:
            raise archive_files.ArchiveError(f"there is no archive {name[:80]!r}; `csi archive list` shows them all")
        for row in archive_files.read(rt, book):
            told = {"error_message": logs.redact(row["error_message"])} if row.get("error_message") else {}
            click.echo(json.dumps(row | told))


@archive.command()
@click.argument("name")
@click.option("--keep", "days", type=click.IntRange(1, 3650), default=7, show_default=True, help="Days they stay.")
@config_option
@json_option
def restore(name: str, days: int, config_path: Path | None, as_json: bool) -> None:
    """Put the rows of a file back into their table; after so many days they are put away again."""
    with installed(config_path) as rt:
        done = archive_files.restore(rt, name, keep_days=days)
    if as_json:
        echo_json({"name": done.name, "rows": done.rows, "kept_until": iso(done.kept_until)})
        return
    click.echo(f"{done.rows:,} rows of {done.name} are back until {stamp(done.kept_until)}")
