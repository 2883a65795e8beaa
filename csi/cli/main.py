"""The `csi` command: a table of sub-commands, each imported only when it is used.

The modules that a command imports are loaded lazily, too: `csi … --help` and shell completion load neither the database
nor the HTTP libraries.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType

import click

from csi import __version__
from csi.errors import CsiError

# name: (module:attribute, line in --help). Text instead of imports, so that `csi --help` starts fast.
COMMANDS = {
    "adapters": ("csi.cli.adapters:adapters", "List, show and test the installed sources, built in or as plugins."),
    "archive": ("csi.cli.catalog_jobs:archive", "Move old statistics and jobs into archive files, and restore them."),
    "audit": ("csi.cli.audit:audit_group", "List what operators and agents changed."),
    "channels": ("csi.cli.catalog:channels_group", "Track channels: their videos and their statistics over time."),
    "compare": ("csi.cli.compare:compare", "Compare with the poller that CSI replaces, and take over what it saw."),
    "completion": ("csi.cli.completion:completion", "Print the completion script of a shell."),
    "config": ("csi.cli.config:config", "Check, show and describe the configuration."),
    "db": ("csi.cli.db:db_group", "Migrate, inspect, back up and copy the database."),
    "delivery": ("csi.cli.delivery:delivery", "Show, pause, resume and test delivery to destinations."),
    "destinations": ("csi.cli.destinations:destinations_group", "List, add, change, test and remove destinations."),
    "demo": ("csi.cli.demo:demo", "Run a demonstration with a simulated YouTube and a receiver."),
    "dlq": ("csi.cli.dlq:dlq", "Search, replay, discard and delete dead letters."),
    "docs": ("csi.cli.docs:docs", "Print the runbook or another document."),
    "doctor": ("csi.cli.doctor:doctor", "Check the whole installation, with a remedy for each problem."),
    "events": ("csi.cli.events:events", "List, show and follow events."),
    "examples": ("csi.cli.examples:examples", "Print an example file: configuration, units, alert rules."),
    "exec": ("csi.cli.exec:exec_command", "Run a command with the variables of --env-file."),
    "health": ("csi.cli.status:health", "Report by exit code whether the service is healthy; for containers."),
    "inbound": ("csi.cli.inbound:inbound", "Receive pushes of hubs, of Composio and of your own scripts."),
    "init": ("csi.cli.init:init", "Write a first configuration, and test it."),
    "jobs": ("csi.cli.catalog_jobs:jobs_group", "List, enqueue, retry and cancel the catalogue's jobs."),
    "login-link": ("csi.cli.run:login_link", "Print a link that signs a browser in on the dashboard."),
    "logs": ("csi.cli.logs:logs_command", "Show the log of the services, readable and filtered."),
    "mcp": ("csi.cli.mcp:mcp", "Let an agent ask and, if allowed, change things (MCP)."),
    "notify": ("csi.cli.notify:notify", "Show alerts, test and mute notifications."),
    "problems": ("csi.cli.problems:problems", "List what is wrong now, and acknowledge incidents."),
    "processing": ("csi.cli.processing:processing", "Turn received signals into transcripts and summaries."),
    "prune": ("csi.cli.db:prune", "Delete rows that are older than their retention."),
    "quota": ("csi.cli.quota:quota", "Show today's API units and the polling intervals they allow."),
    "receiver": ("csi.cli.receiver:receiver", "Run the receiver."),
    "reload": ("csi.cli.reload:reload", "Load the changed configuration into the running worker and sidecar."),
    "run": ("csi.cli.run:run", "Run worker and sidecar in the foreground."),
    "runs": ("csi.cli.processing_records:runs_group", "Show processing's daily runs."),
    "schema": ("csi.cli.config:schema", "Print the JSON Schema of an event, a request or the config."),
    "simulate": ("csi.cli.simulate:simulate", "Run a stand-in for an outside service."),
    "slo": ("csi.cli.status:slo", "Compare the measured service levels with the objectives."),
    "sources": ("csi.cli.sources:sources", "List, add, pause and remove watches."),
    "status": ("csi.cli.status:status", "Show a one-page status."),
    "tasks": ("tasks.cli:tasks", "Show queued and running tasks, and what each waits for."),
    "top": ("csi.cli.top:top", "Show live activity; / filters, Enter shows one event, q ends."),
    "trace": ("csi.cli.events:trace", "Show the timeline of one item."),
    "version": ("csi.cli.version:version", "Print versions and the installed extras."),
    "videos": ("csi.cli.catalog:videos_group", "Show the videos of tracked channels."),
}


GROUPS = {
    "Start": ("init", "run", "login-link", "demo", "simulate", "examples", "docs", "completion", "version"),
    "Watch": ("sources", "adapters", "inbound", "quota"),
    "Look": ("status", "top", "problems", "events", "trace", "tasks", "slo", "health", "logs"),
    "Deliver": ("delivery", "destinations", "dlq"),
    "Operate": ("config", "reload", "doctor", "notify", "audit", "db", "prune", "compare", "exec", "mcp", "schema"),
    "Channels and videos over time": ("channels", "videos", "jobs", "archive"),
    "The receiving side": ("receiver", "processing", "runs"),
}
"""The commands as `csi --help` lists them."""

_WITH_OWN_VARIABLES = ("init", "demo", "simulate")
"""These commands make an installation of their own: they do not look for one in the working directory."""

_LAZY_LIBRARIES = ("pydantic", "yaml")
"""Libraries that a command's module imports directly."""


class _LazyFinder(MetaPathFinder):
    """Finds modules as usual, and lets them load at the first attribute access.

    Only a module import is lazy: `from csi import runtime` is, `from csi.runtime import Runtime` loads it at once.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname.startswith(("csi.", "tasks.")) and not fullname.startswith(("csi.cli", "tasks.cli"))
        if not ours and fullname not in _LAZY_LIBRARIES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def lazy_imports() -> Iterator[None]:
    """Modules imported in this block are loaded when they are first used."""
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        with lazy_imports():
            command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click suggests only names of loaded commands; pass all of them
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped = {name for names in GROUPS.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in grouped]
        for title, names in {**GROUPS, **({"Other": others} if others else {})}.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names if name in COMMANDS])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--env-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="CSI_ENV_FILE",
    metavar="PATH",
    help="Read variables from this file; the environment takes precedence.  [default: $CSI_ENV_FILE, or the file "
    "env that csi init wrote in this directory]",
)
@click.version_option(__version__, prog_name="csi")
@click.pass_context
def cli(ctx: click.Context, env_file: Path | None) -> None:
    """Creator Signal Intelligence: watch creators, deliver every new item once, signed, never lost."""
    from csi.cli import envfile

    names_another = any(word == "--config" or word.startswith("--config=") for word in sys.argv)
    if env_file is None and not names_another and ctx.invoked_subcommand not in _WITH_OWN_VARIABLES:
        env_file = ctx.params["env_file"] = envfile.written_here(os.environ)
    if env_file is not None:
        envfile.load(env_file, os.environ)


def run() -> None:
    """The entry point: a CsiError is printed as one sentence on stderr with its exit code, without a traceback."""
    os.umask(0o077)  # what this process writes is for its own user
    try:
        cli(prog_name="csi")
    except CsiError as error:
        from csi.logs.journal import print_error

        print_error(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)  # the reader of our output closed the pipe, as `csi … | head` does
    except Exception as error:
        from csi.errors import NoThreads, StoreError, is_without_threads
        from csi.store import database_faults
        from csi.store.db import DatabaseError, place

        if is_without_threads(error):
            click.echo(f"csi: {NoThreads()}", err=True)
            sys.exit(NoThreads.exit_code)
        if isinstance(error, PermissionError):
            where = error.filename or "a file"
            click.echo(f"csi: {where}: permission denied; run it as the user of the worker, or as root", err=True)
            sys.exit(StoreError.exit_code)
        if not isinstance(error, DatabaseError):
            raise  # a bug: show the traceback
        found = database_faults.identify(error)
        click.echo(f"csi: {place()}: {found.text}; {found.remedy}", err=True)
        sys.exit(StoreError.exit_code)


if __name__ == "__main__":
    run()
