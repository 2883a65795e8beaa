"""What processing's commands have in common: its config, its database, and nothing is made by looking at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from csi import logs, net
from csi.errors import StoreError
from csi.processing import config, runtime
from csi.processing.store import db

TOLD = {"assigned_to", "data_summary", "error_message", "final_error", "last_error", "resolution_notes", "stack_trace"}
"""Where the words of providers and people are. The rest of a document is shown as it is."""

F = TypeVar("F", bound=Callable[..., Any])


def processing_option(command: F) -> F:
    return click.option(
        "--config",
        "config_path",
        type=click.Path(dir_okay=False, path_type=Path),
        help="processing.yaml. [default: CSI_PROCESSING_CONFIG, else the built-in defaults]",
    )(command)


@contextmanager
def processing_session(config_path: Path | None) -> Iterator[runtime.Processing]:
    """Settings and database. A command must not create a database: as root it would lock the worker out."""
    settings = config.load(config_path)
    logs.setup(level="WARNING", format=settings.log_format, secrets=config.available_secrets(settings).all)
    url = settings.database_url
    if "://" not in url and not Path(url).exists():
        raise StoreError(
            f"there is no database at {url}: csi processing run makes it; is --config (or {config.STATE_DIR}) right?"
        )
    db.open_database(url)
    missing = db.pending_migrations()
    if missing:
        raise StoreError(f"the schema of processing's database lacks {', '.join(missing)}: start csi processing run")
    with db.reading():
        yield runtime.Processing(settings, net.Net())


def redacted(value: Any) -> Any:
    """A document without secrets: an error may hold a provider's own words, and those what we sent."""
    if isinstance(value, dict):
        return {
            name: logs.redact(one) if name in TOLD and isinstance(one, str) else redacted(one)
            for name, one in value.items()
        }
    return [redacted(one) for one in value] if isinstance(value, list) else value
