"""`csi docs`: the runbook and the documentation that the package contains, in the terminal."""

from __future__ import annotations

import re

import click

from csi.cli.output import echo_lines
from csi.errors import CsiError
from csi.web import docs_pages


@click.command()
@click.argument("name", required=False)
@click.argument("section", required=False)
def docs(name: str | None, section: str | None) -> None:
    """Print the runbook or another document; without NAME list them.

    SECTION is a heading or the anchor of one, as messages name it: `csi docs runbook a-reload-is-refused`, also with
    a leading #. A problem's id is one, too: `csi docs runbook receiver_away`.
    """
    files = docs_pages.files()
    if name is None:
        echo_lines(sorted(files))
        return
    if name not in files:
        raise CsiError(f"there is no document {name[:40]!r}; there are: {', '.join(sorted(files))}")
    text = files[name].read_text(encoding="utf-8")
    echo_lines((text if section is None else section_of(text, section)).splitlines())


def section_of(text: str, section: str) -> str:
    """The part of a Markdown text from this heading to the next one of its level. CsiError when there is none."""
    from csi.processing import problems
    from csi.status.problems import KINDS

    kind = KINDS.get(section) or problems.KINDS.get(section)
    wanted = kind.runbook if kind else docs_pages.anchor(section.removeprefix("#"))
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    found = {docs_pages.anchor(part.partition("\n")[0].removeprefix("## ")): part for part in parts[1:]}
    if wanted not in found:
        raise CsiError(f"there is no section {section[:80]!r}; there are: {', '.join(found)}")
    return found[wanted].rstrip()
