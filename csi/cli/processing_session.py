"""What the commands of processing share: their option, the open database, redacted output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import logs, net
from csi.cli.command import user_name
from csi.cli.output import echo_json, echo_table
from csi.errors import StoreError
from csi.processing import config, runtime
from csi.processing.store import (
    db,
)

if TYPE_CHECKING:
    from csi.processing.collection_models import SpecDocument
FREE_TEXT_FIELDS = {
    "assigned_to", "data_summary", "error_message", "final_error", "last_error", "resolution_notes", "stack_trace",
}  # fmt: skip
"""Fields with text of providers and people, which may contain a secret. Other fields are shown unchanged."""

processing_option = click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="processing.yaml. [default: CSI_PROCESSING_CONFIG, else the built-in defaults]",
)


@contextmanager
def processing_session(config_path: Path | None) -> Iterator[runtime.Processing]:
    """Open the existing database. A command never creates it: a file that root creates locks the worker out."""
    settings = config.load(config_path)
    logs.setup(level="WARNING", format=settings.log_format, secrets=config.read_secrets(settings, required=False).all)
    url = settings.database_url
    if "://" not in url and not Path(url).exists():
        raise StoreError(
            f"there is no database at {url}: csi processing run creates it; check --config (or {config.STATE_DIR})"
        )
    db.open_database(url)
    missing = db.pending_migrations()
    if missing:
        raise StoreError(f"the schema of processing's database lacks {', '.join(missing)}: start csi processing run")
    with db.reading():
        yield runtime.Processing(settings, net.Net(), operator=user_name())


def redacted(value: Any) -> Any:
    """The document without secrets: an error may quote a provider's answer, and that a key we sent."""
    if isinstance(value, dict):
        return {
            name: logs.redact(one) if name in FREE_TEXT_FIELDS and isinstance(one, str) else redacted(one)
            for name, one in value.items()
        }
    return [redacted(one) for one in value] if isinstance(value, list) else value


def echo_documents(
    documents: Sequence[SpecDocument],
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    as_json: bool,
    empty: str | None = None,
) -> None:
    """Print the documents as JSON, or their rows as a table; `empty` replaces a table without rows."""
    if as_json:
        echo_json([redacted(document.shape()) for document in documents])
    elif rows or empty is None:
        echo_table(head, [[*map(str, row)] for row in rows])
    else:
        click.echo(empty)


def checked_day(text: str) -> str:
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise click.BadParameter(f"{text[:20]!r} is not a day; write it as 2026-02-22") from error
