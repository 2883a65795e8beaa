"""What the commands share: their options, and the settings and the existing database of an installation."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from csi import logs, net, runtime
from csi.config import durations, secrets
from csi.errors import CsiError, StoreError
from csi.store import audit, db

if TYPE_CHECKING:
    from csi.config.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Configuration file.  [default: $CSI_CONFIG_PATH, else /etc/csi/config.yaml]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def config_and_json_options(command: F) -> F:
    return config_option(json_option(command))


class DurationType(click.ParamType[float]):
    """A duration as an option's value: `90d`, `1h30m`; with `ago` also `1 hour ago`. A bare number is refused."""

    name = "duration"

    def __init__(self, *, ago: bool = False) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return durations.parse_since(str(value)) if self._ago else durations.parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@contextmanager
def installed(config_path: Path | None) -> Iterator[runtime.Runtime]:
    """Open the settings and the database; StoreError when the database is missing or its schema is old."""
    with opened(runtime.load_settings(config_path)) as rt:
        yield rt


@contextmanager
def opened(settings: Settings) -> Iterator[runtime.Runtime]:
    """Like `installed`, with these settings."""
    logs.setup(level="WARNING", format=settings.csi.log_format, secrets=runtime.secret_values(settings))
    url = settings.csi.database_url
    # A command must not create the database: run by root it would own the file, and the worker could not write to it.
    if "://" not in url and not Path(url).exists():
        raise StoreError(f"there is no database at {url}: start the worker once to create it, or check --config")
    db.open_database(url)
    if missing := db.pending_migrations():
        lacking = f"{secrets.hide_password(url)} lacks {', '.join(missing)}"
        raise StoreError(f"the schema of {lacking}: run csi db migrate, or start the worker")
    with db.reading():
        rt = runtime.Runtime(settings, runtime.configured_net(settings))
        rt.use_held_sources()
        rt.use_managed_destinations()
        yield rt


def user_name() -> str:
    """The user that runs the command; the number of one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def audited(
    rt: runtime.Runtime, action: str, change: Callable[[], T], detail: Callable[[T], str], *, dry_run: bool = False
) -> T:
    """Make a change that the audit log records: the action before it, its result after it. A dry run is not."""
    if dry_run:
        return change()
    entry = audit.begin(rt.now(), via="cli", role="admin", client=user_name(), action=action)
    try:
        result = change()
    except CsiError as error:
        audit.finish(entry, rt.now(), status=1, detail=str(error))
        raise
    audit.finish(entry, rt.now(), status=0, detail=detail(result))
    return result


def sidecar_url(settings: Settings) -> str:
    """The sidecar's address on this machine, as configured."""
    return net.local_url(settings.web.host, settings.web.port)
