"""The runtime of one command: the database of an installation that exists, and nothing is made by looking at it."""

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
    """Settings and database, opened. A command must not create a database: as root it would lock the worker out."""
    settings = runtime.load_settings(config_path)
    logs.setup(level="WARNING", format=settings.csi.log_format, secrets=runtime.secret_values(settings))
    _refuse_absent(settings.csi.database_url)
    db.open_database(settings.csi.database_url)
    _refuse_old(settings.csi.database_url)
    with db.reading():
        yield runtime.Runtime(settings, net.Net(allow_insecure_http=settings.delivery.allow_insecure_http))


def _refuse_absent(url: str) -> None:
    if "://" not in url and not Path(url).exists():
        raise StoreError(f"there is no database at {url}: the worker makes it at its first start; is --config right?")


def _refuse_old(url: str) -> None:
    missing = db.pending_migrations()
    if missing:
        raise StoreError(
            f"the schema of {hide_password(url)} lacks {', '.join(missing)}: run csi db migrate, or start the worker"
        )


def sidecar_url(settings: Settings) -> str:
    """Where the sidecar of this configuration answers on this machine."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.web.host, settings.web.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.web.port}"
