"""Writes the manual page and the completion scripts that the wheel installs, from the commands."""

from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from csi.cli.completion import SHELLS
from csi.cli.main import cli
from csi.errors import EXIT_CODES
from ops.docs_cli import leaves

FOLDER = Path(__file__).resolve().parent / "man"
SCRIPTS = {"bash": "csi.bash", "zsh": "_csi", "fish": "csi.fish"}

FILES = {
    "/etc/csi/config.yaml": "the configuration; CSI_CONFIG_PATH and --config name another file",
    "/etc/csi/env": "variables with the secrets, for the services and for --env-file",
    "/var/lib/csi": "database, queue and locks (csi.state_dir)",
    "/var/backups/csi": "copies of the database",
}
VARIABLES = {
    "CSI_CONFIG_PATH": "the configuration file",
    "CSI_ENV_FILE": "a file of variables that is read first; the environment takes precedence",
}
SEE = "All options, the JSON output and the configuration are described by `csi docs cli` and `csi docs configure`."


def texts() -> dict[str, str]:
    """By the name of the file in ops/man."""
    return {"csi.1": "\n".join(_page()) + "\n"} | {SCRIPTS[shell]: _script(shell) for shell in SHELLS}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text)


def _page() -> Iterator[str]:
    """Without version and date: a release changes neither."""
    yield '.TH CSI 1 "" "Creator Signal Intelligence" "User Commands"'
    yield from (".SH NAME", "csi \\- watch creators, deliver every new item once, signed, never lost")
    yield from (
        ".SH SYNOPSIS",
        ".B csi",
        "[\\fB\\-\\-env\\-file\\fR \\fIPATH\\fR]",
        "\\fICOMMAND\\fR [\\fIARGUMENTS\\fR]",
    )
    yield from (".SH DESCRIPTION", _escaped((cli.help or "").strip()), ".PP", _escaped(SEE))
    yield ".SH COMMANDS"
    for name, command in leaves():
        context = click.Context(command)
        arguments = [param.make_metavar(context) for param in command.params if isinstance(param, click.Argument)]
        yield from _entry(" ".join([name, *arguments]), command.get_short_help_str(200))
    for title, table in (("FILES", FILES), ("ENVIRONMENT", VARIABLES), ("EXIT STATUS", EXIT_CODES)):
        yield f".SH {title}"
        for key, meaning in table.items():
            yield from _entry(str(key), meaning)


def _entry(term: str, text: str) -> tuple[str, ...]:
    return ".TP", f".B {_escaped(term)}", _escaped(text)


def _escaped(text: str) -> str:
    """One line of roff: a backslash, a hyphen and a leading dot or quote have a meaning there."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


def _script(shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    return ShellComplete.source(kind(cli, {}, "csi", "_CSI_COMPLETE")) + "\n"
