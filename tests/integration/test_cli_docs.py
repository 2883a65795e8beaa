"""`csi docs`: the runbook is in the package, and every section that a problem names can be printed."""

import subprocess
import sys
import zipfile

import pytest
from click.testing import CliRunner

from csi.cli.main import cli
from csi.status.problems import KINDS
from tests.fakes.pages import ROOT


def run(*arguments):
    return CliRunner().invoke(cli, ["docs", *arguments])


def test_the_documents_are_listed_and_the_runbook_is_printed_whole():
    assert {"runbook", "operate"} <= set(run().output.split())
    assert run("runbook").output.rstrip() == (ROOT / "ops/runbook.md").read_text().rstrip()


@pytest.mark.parametrize(
    "section", ["a-reload-is-refused", "#a-reload-is-refused", "A reload is refused", "reload_refused"]
)
def test_a_section_is_found_by_anchor_heading_and_problem(section):
    printed = run("runbook", section).output
    assert printed.startswith("## A reload is refused\n")
    assert printed.count("\n## ") == 0


@pytest.mark.parametrize("problem", KINDS)
def test_every_problem_has_its_section(problem):
    assert run("runbook", problem).output.startswith("## ")


@pytest.mark.parametrize("arguments", [("nothing",), ("runbook", "no-such-section")])
def test_what_does_not_exist_is_said_with_what_does(arguments):
    done = run(*arguments)
    assert done.exit_code == 1
    assert "there are: " in str(done.exception)


@pytest.mark.slow
def test_the_wheel_contains_the_runbook(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert opened.read("csi/web/markdown/runbook.md") == (ROOT / "ops/runbook.md").read_bytes()
