"""What processing's commands share: the option --config, the open database, and redacted documents."""

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

FREE_TEXT_FIELDS = {
    "assigned_to",
    "data_summary",
    "error_message",
    "final_error",
    "last_error",
    "resolution_notes",
    "stack_trace",
}
"""Fields with text of providers and people, which may contain a secret. Other fields are shown unchanged."""

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
    """Open the existing database. A command never creates it: a file that root creates locks the worker out."""
    settings = config.load(config_path)
    logs.setup(level="WARNING", format=settings.log_format, secrets=config.available_secrets(settings).all)
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
        yield runtime.Processing(settings, net.Net())


def redacted(value: Any) -> Any:
    """The document without secrets: an error may quote a provider's answer, and that a key we sent."""
    if isinstance(value, dict):
        return {
            name: logs.redact(one) if name in FREE_TEXT_FIELDS and isinstance(one, str) else redacted(one)
            for name, one in value.items()
        }
    return [redacted(one) for one in value] if isinstance(value, list) else value
