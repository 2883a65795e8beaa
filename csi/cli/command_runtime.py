"""The runtime of one command: settings and the existing database of an installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from csi import logs, net, runtime
from csi.config.secrets import hide_password
from csi.errors import StoreError
from csi.store import db

if TYPE_CHECKING:
    from csi.config.settings import Settings


@contextmanager
def installed(config_path: Path | None) -> Iterator[runtime.Runtime]:
    """Open the settings and the database; StoreError when the database is missing or its schema is old."""
    settings = runtime.load_settings(config_path)
    logs.setup(level="WARNING", format=settings.csi.log_format, secrets=runtime.secret_values(settings))
    url = settings.csi.database_url
    # A command must not create the database: run by root it would own the file, and the worker could not write to it.
    if "://" not in url and not Path(url).exists():
        raise StoreError(f"there is no database at {url}: start the worker once to create it, or check --config")
    db.open_database(url)
    if missing := db.pending_migrations():
        raise StoreError(
            f"the schema of {hide_password(url)} lacks {', '.join(missing)}: run csi db migrate, or start the worker"
        )
    with db.reading():
        yield runtime.Runtime(settings, net.Net(allow_insecure_http=settings.delivery.allow_insecure_http))


def sidecar_url(settings: Settings) -> str:
    """The sidecar's address on this machine."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.web.host, settings.web.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.web.port}"
