"""What processing's commands have in common: its config, its database, and nothing is made by looking at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from csi import logs, net
from csi.errors import StoreError
from csi.ingester.config_secrets import read_variable
from csi.processing import config, runtime
from csi.processing.store import db

if TYPE_CHECKING:
    from csi.processing.settings import ProcessingSettings

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
def opened(config_path: Path | None) -> Iterator[runtime.Processing]:
    """Settings and database. A command must not create a database: as root it would lock the worker out."""
    settings = config.load(config_path)
    logs.setup(level="WARNING", format=settings.log_format, secrets=_hidden(settings))
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


def masked(value: Any) -> Any:
    """A document without secrets: an error may hold a provider's own words, and those what we sent."""
    if isinstance(value, dict):
        return {
            name: logs.redact(one) if name in TOLD and isinstance(one, str) else masked(one)
            for name, one in value.items()
        }
    return [masked(one) for one in value] if isinstance(value, list) else value


def _hidden(settings: ProcessingSettings) -> Iterator[str]:
    """The secrets that are there. Looking needs none of them, so none is missed."""
    assemblyai, openai = settings.transcription.assemblyai, settings.summarization.openai
    names = (assemblyai.api_key_env, assemblyai.webhook_secret_env, openai.api_key_env, settings.notifications.urls_env)
    for name in filter(None, names):
        with suppress(ValueError):
            yield from (read_variable(name, os.environ) or "").split()
