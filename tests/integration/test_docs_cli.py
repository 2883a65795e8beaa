"""docs/cli.md: its options, exit codes and JSON shapes are those of the commands."""

import re
from pathlib import Path

import click
import pytest

from csi import errors
from csi.errors import EXIT_CODES
from ops import docs_cli, man
from tests.fakes import shapes
from tests.fakes.pages import ROOT, codes, rows, section

PAGE = docs_cli.PAGE
LEAVES = dict(docs_cli.leaves())


def between(name: str, page: Path = PAGE) -> str:
    return page.read_text().partition(f"<!-- generated: {name} -->\n\n")[2].partition(f"\n\n<!-- end: {name} -->")[0]


@pytest.mark.parametrize("name", docs_cli.blocks())
def test_the_generated_parts_are_up_to_date(name):
    assert between(name) == docs_cli.blocks()[name], "run `python -m ops.docs`"


@pytest.mark.parametrize("name", man.texts())
def test_the_manual_page_and_the_completion_scripts_are_up_to_date(name):
    assert (man.FOLDER / name).read_text() == man.texts()[name], "run `python -m ops.docs`"


def test_every_json_shape_is_the_documented_one(tmp_path):
    """Runs every reading command over an installation with something of everything in it."""
    assert between("shapes", docs_cli.JSON_PAGE) == shapes.text_of(tmp_path), (
        "a shape changed; `python -m tests.fakes.shapes` writes it"
    )


def test_every_command_that_prints_json_and_only_reads_has_its_shape_in_the_page():
    """What changes something may say what it did as it likes; whoever adds a reading command adds its shape."""
    changing = {
        "accept",
        "ack",
        "add",
        "import",
        "poll",
        "replay",
        "rotate",
        "discard",
        "prune",
        "purge",
        "demo",
        "copy",
        "repair",
    }
    changing |= {
        "events resend",
        "archive run",
        "archive restore",
        "channels backfill",
        "jobs enqueue",
        "sources set",
        "channels remove",
    }
    names = {name.removeprefix("csi ") for name, command in LEAVES.items() if _options(command) & {"--json"}}
    reading = {name for name in names if not {name, name.rpartition(" ")[2]} & changing}
    shown = {name for name in reading for line in shapes.COMMANDS if line == name or line.startswith(f"{name} ")}
    assert reading == shown


def _options(command: click.Command) -> set[str]:
    return {name for param in command.params if isinstance(param, click.Option) for name in param.opts}


@pytest.mark.parametrize(
    "name",
    [
        "csi archive run",
        "csi dlq discard",
        "csi dlq prune",
        "csi jobs cancel",
        "csi prune",
        "csi sources remove",
        "csi tasks purge",
    ],
)
def test_what_destroys_can_be_tried_and_confirmed(name):
    assert {"--yes", "--dry-run"} <= _options(LEAVES[name])
    assert name.removeprefix("csi ") in codes(section(PAGE, "Destructive commands ask first"))


def test_every_exit_code_of_an_error_is_in_the_one_table():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CsiError)]
    assert {kind.exit_code for kind in kinds} | {0, 2, 5, 6, 10, 130, 141} == set(EXIT_CODES)
    told = {int(cells[0]) for cells in rows(section(ROOT / "docs/operate.md", "Exit codes"))}
    assert told == set(EXIT_CODES)


def test_the_commands_named_in_the_question_table_exist():
    named = [text for cells in rows(section(PAGE, "Which command answers which question")) for text in codes(cells[1])]
    assert len(named) >= 8
    assert [text for text in named if not any(re.match(rf"{name}\b", text) for name in LEAVES)] == []
