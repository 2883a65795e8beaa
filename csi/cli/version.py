"""`csi version`: which versions run, and which extras are installed."""

from __future__ import annotations

import importlib.util
import platform
import sqlite3
from pathlib import Path

import click

from csi import __version__
from csi.cli.command import json_option
from csi.cli.output import echo_json

EXTRAS = {
    "redis": "redis",
    "postgres": "psycopg",
    "notify": "apprise",
    "processing": "youtube_transcript_api",
    "re2": "re2",
    "mcp": "mcp",
    "parquet": "pyarrow",
}
"""Each extra of the distribution, with the module whose presence says that it is installed."""


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the versions of CSI, Python and SQLite, where CSI is installed, and its extras."""
    extras = {name: importlib.util.find_spec(module) is not None for name, module in EXTRAS.items()}
    place = str(Path(__file__).resolve().parents[2])
    python, sqlite = platform.python_version(), sqlite3.sqlite_version
    if as_json:
        echo_json({"version": __version__, "python": python, "sqlite": sqlite, "place": place, "extras": extras})
        return
    missing = [name for name, there in extras.items() if not there]
    click.echo(f"csi {__version__}  (Python {python}, SQLite {sqlite}, {place})")
    click.echo(f"extras: {', '.join(name for name, there in extras.items() if there) or 'none'}")
    if missing:
        click.echo(f"not installed: {', '.join(missing)}; pip install 'creator-signals[{','.join(missing)}]'")
