"""The `csi` command: a table of sub-commands, each imported only when it is used."""

import importlib
import os
import sys
from pathlib import Path

import click

from csi import __version__
from csi.cli import lazy_imports
from csi.errors import CsiError

# name: (where it lives, the line in --help). Kept as text so that `csi --help` imports nothing.
COMMANDS = {
    "archive": ("csi.cli.archive:archive", "Put old statistics and jobs into files, and bring them back."),
    "audit": ("csi.cli.audit:audit", "Read processing's audit log."),
    "channels": ("csi.cli.channels:channels", "Track channels: their videos, and their numbers over time."),
    "compare": ("csi.cli.compare:compare", "Compare with the poller that CSI replaces, and take over what it saw."),
    "completion": ("csi.cli.completion:completion", "Print the completion script of a shell."),
    "config": ("csi.cli.config:config", "Check, show and describe the configuration."),
    "db": ("csi.cli.db:db", "Migrate, inspect and back up the database."),
    "delivery": ("csi.cli.delivery:delivery", "Show, pause, resume and test the delivery to receivers."),
    "demo": ("csi.cli.demo:demo", "Watch items travel from a simulated YouTube to a receiver."),
    "dlq": ("csi.cli.dlq:dlq", "Look at dead letters, send them again, discard or delete them."),
    "doctor": ("csi.cli.doctor:doctor", "Examine the whole installation, and say how to mend it."),
    "events": ("csi.cli.events:events", "List, show and follow events."),
    "health": ("csi.cli.health:health", "Answer by exit code whether it lives; for containers."),
    "init": ("csi.cli.init:init", "Write a first configuration, and test it."),
    "jobs": ("csi.cli.jobs:jobs", "Look at the catalogue's jobs, enqueue, retry and cancel them."),
    "notify": ("csi.cli.notify:notify", "Show troubles, and try out how people are told of them."),
    "processing": ("csi.cli.processing:processing", "Turn received signals into transcripts and summaries."),
    "prune": ("csi.cli.prune:prune", "Remove what is older than its time."),
    "quota": ("csi.cli.quota:quota", "Show the API units of the day, and how far they go."),
    "receiver": ("csi.cli.receiver:receiver", "Run the receiving side of the wire."),
    "run": ("csi.cli.run:run", "Run worker and sidecar in the foreground."),
    "runs": ("csi.cli.runs:runs", "Show processing's daily runs."),
    "schema": ("csi.cli.schema:schema", "Print the JSON Schema of an event, a request or the config."),
    "simulate": ("csi.cli.simulate:simulate", "Run a stand-in for an outside service."),
    "slo": ("csi.cli.slo:slo", "Hold what was reached against what was promised."),
    "sources": ("csi.cli.sources:sources", "List, add, pause and remove what is watched."),
    "status": ("csi.cli.status:status", "Say on one page how it stands."),
    "tasks": ("tasks.cli:tasks", "Show what is queued, what runs, and what waits for what."),
    "top": ("csi.cli.top:top", "Watch it work, live."),
    "trace": ("csi.cli.trace:trace", "Tell the whole story of one item."),
    "videos": ("csi.cli.videos:videos", "Look at the videos of tracked channels."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        with lazy_imports.waiting():
            command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click looks for similar names among those that are loaded
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--env-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="CSI_ENV_FILE",
    metavar="PATH",
    help="Read variables from this file; what the environment has already wins.  [default: $CSI_ENV_FILE]",
)
@click.version_option(__version__, prog_name="csi")
def cli(env_file: Path | None) -> None:
    """Creator Signal Intelligence: watch creators, deliver every new item once, signed, never lost."""
    if env_file is not None:
        from csi.cli import envfile

        envfile.load(env_file, os.environ)


def run() -> None:
    """The entry point: an error of ours is one sentence on stderr and its own exit code, never a traceback."""
    try:
        cli(prog_name="csi")
    except CsiError as error:
        click.echo(f"csi: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)  # the reader of our output went away, as `csi … | head` does
    except Exception as error:  # noqa: BLE001 the edge of the process
        _say_database(error)


def _say_database(error: Exception) -> None:
    """A database in trouble is named, with its remedy; whatever else it is, it is a bug and shows its traceback."""
    from csi.errors import StoreError
    from csi.store import error_causes
    from csi.store.db import DatabaseError

    if not isinstance(error, DatabaseError):
        raise error
    found = error_causes.name(error)
    click.echo(f"csi: {found.text}; {found.remedy}", err=True)
    sys.exit(StoreError.exit_code)


if __name__ == "__main__":
    run()
