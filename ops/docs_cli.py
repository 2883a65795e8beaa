"""The generated parts of docs/cli.md: every command with its options, and the exit codes."""

from collections.abc import Iterator
from pathlib import Path

import click

from csi.cli.main import cli
from csi.errors import EXIT_CODES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
JSON_PAGE = PAGE.with_name("cli-json.md")


def blocks() -> dict[str, str]:
    return {"exit codes": exit_codes(), "commands": commands()}


def leaves(
    command: click.Command = cli, name: str = "csi", parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command]]:
    """Every command that can be typed, with its full name."""
    ctx = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    if not isinstance(command, click.Group):
        yield name, command
        return
    if command.invoke_without_command:
        yield name, command
    for word in command.list_commands(ctx):
        inner = command.get_command(ctx, word)
        assert inner is not None
        yield from leaves(inner, f"{name} {word}", ctx)


def exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def commands() -> str:
    return "\n\n".join(_section(name, command) for name, command in leaves())


def _section(name: str, command: click.Command) -> str:
    arguments = [param.make_metavar(_context(command)) for param in command.params if isinstance(param, click.Argument)]
    text = (command.help or "").replace("\b\n", "").strip()
    prose = " ".join(line.strip() for line in text.split("\n\n")[0].splitlines())
    rows = list(_option_rows(command))
    table = ["", "| option | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join([f"### {name}", "", f"`{' '.join([name, *arguments])}`: {prose}", *table])


def _option_rows(command: click.Command) -> Iterator[str]:
    for param in command.params:
        if isinstance(param, click.Option):
            yield f"| `{_names(param, command)}` | {_cell(param, command)} |"


def _names(option: click.Option, command: click.Command) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(_context(command))}"
    return f"{', '.join(option.opts)}{value}".replace("|", "\\|")


def _cell(option: click.Option, command: click.Command) -> str:
    record = option.get_help_record(_context(command))
    return (record[1] if record else "").replace("|", "\\|").strip() or "–"


def _context(command: click.Command) -> click.Context:
    return click.Context(command)


def rewritten(text: str, generated: dict[str, str]) -> str:
    for name, block in generated.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n\n{block}\n\n{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    PAGE.write_text(rewritten(PAGE.read_text(), blocks()))
