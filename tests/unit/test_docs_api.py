"""docs/api.md: every operation has its row, and every command has a path or a reason why it has none."""

import re

import pytest

from csi.cli.main import COMMANDS
from csi.web import api
from ops.docs_cli import PAGE

TEXT = PAGE.with_name("api.md").read_text()
OF_THE_HOST = TEXT.partition("| command | reason |")[2].partition("\n\n")[0]


def test_every_operation_has_its_row_and_no_other_has_one() -> None:
    documented = set(re.findall(r"^\| `((?:GET|POST|PATCH|DELETE) /admin/[^`]+)` \|", TEXT, re.MULTILINE))
    assert documented == {f"{one.method} /admin{one.path}" for one in api.operations()}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_a_path_or_a_reason(command: str) -> None:
    paths = {one.tag for one in api.operations()}
    assert command in paths or re.search(rf"`{command}\b", OF_THE_HOST)
