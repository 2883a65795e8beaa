"""`csi` itself: quick to start, variables from a file, completion, and what other commands have in common."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from csi.cli import envfile
from csi.cli.main import COMMANDS, cli
from csi.errors import ConfigError
from tests.fakes.pages import ROOT

HEAVY = {"huey", "httpx", "jinja2", "loguru", "peewee", "pydantic", "rich", "starlette", "uvicorn", "yaml"}


def imported(*arguments: str) -> set[str]:
    """The modules that are there when a command has printed its help."""
    program = f"import sys; sys.argv = ['csi', *{arguments!r}]\nfrom csi.cli.main import run\ntry:\n run()\n"
    program += "finally:\n print('MODULES', *sys.modules)"
    env = {name: value for name, value in os.environ.items() if not name.startswith("CSI_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.partition("MODULES ")[2].split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)], ids=" ".join)
def test_help_imports_no_library_but_click(arguments):
    found = imported(*arguments)
    assert "csi.cli.main" in found
    assert {name.partition(".")[0] for name in found} & HEAVY == set()
    assert {name for name in found if name.startswith("csi.")} == {
        "csi.cli",
        "csi.cli.main",
        "csi.errors",
    }


def test_every_command_of_the_table_is_there_under_its_name():
    for name in COMMANDS:
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0, f"{name}: {result.output}"
        assert f" {name} " in result.output


# --- a file of variables


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "env"
    path.write_text(text)
    return path


def test_a_file_of_variables_is_read_as_systemd_and_shells_read_it(tmp_path):
    text = '# note\n\n; note\nA=plain\nexport B=\'single $x\'\nC="a \\"b\\" \\$c"\nD=\nE = spaced \n'
    found = envfile.read_variables(write(tmp_path, text))
    assert found == {"A": "plain", "B": "single $x", "C": 'a "b" $c', "D": "", "E": "spaced"}


def test_the_environment_wins_over_the_file_and_an_empty_variable_counts_as_not_set(tmp_path):
    env = {"A": "mine", "B": ""}
    envfile.load(write(tmp_path, "A=file\nB=file\nC=file\n"), env)
    assert env == {"A": "mine", "B": "file", "C": "file"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A=1\nthe-secret-value\n", "env:2: expected NAME=value"),
        ("A='the-secret-value\n", "env:1: expected NAME=value"),
        ("9A=the-secret-value\n", "env:1: expected"),
        ("A=" + "x" * 300_000, "larger than 256 KiB"),
    ],
    ids=["no name", "open quote", "bad name", "huge"],
)
def test_a_bad_file_is_named_with_its_line_and_never_quoted(tmp_path, text, said):
    with pytest.raises(ConfigError) as caught:
        envfile.read_variables(write(tmp_path, text))
    assert said in str(caught.value)
    assert "the-secret-value" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        envfile.read_variables(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        envfile.read_variables(tmp_path / "binary")


def test_every_command_takes_its_variables_from_the_file(tmp_path):
    (tmp_path / "config.yaml").write_text("csi: {state_dir: state}\n")
    env_file = write(tmp_path, f"CSI_CONFIG_PATH={tmp_path}/config.yaml\nCSI_INSTANCE_ID=from-the-file\n")
    line = [sys.executable, "-m", "csi.cli.main", "--env-file", str(env_file), "config", "show"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("CSI_")}
    done = subprocess.run(line, env=env | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)
    assert "instance_id: from-the-file" in done.stdout, done.stderr


def test_commands_find_the_installation_that_init_wrote_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(envfile, "SYSTEM_CONFIG", tmp_path / "etc")
    monkeypatch.chdir(tmp_path)
    assert envfile.written_here({}) is None
    mine = write(tmp_path, f"CSI_CONFIG_PATH={tmp_path}/config.yaml\n")
    mine.chmod(0o600)
    assert envfile.written_here({}) == mine
    assert envfile.written_here({"CSI_CONFIG_PATH": "/srv/config.yaml"}) is None
    mine.chmod(0o660)
    assert envfile.written_here({}) is None, "others may change it"
    mine.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: mine.stat().st_uid + 1)
    assert envfile.written_here({}) is None, "it belongs to another user"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(envfile, "SYSTEM_CONFIG", mine)
    assert envfile.written_here({}) is None, "this machine has an installation"


@pytest.mark.parametrize("text", ["PORT=8000\n", "a note\n", "CSI_CONFIG_PATH=/srv/csi/config.yaml\n", ""])
def test_a_file_env_of_another_program_is_not_read(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, text).chmod(0o600)
    assert envfile.written_here({}) is None


@pytest.mark.parametrize(("option", "used"), [((), "mine"), (("--config", "other.yaml"), "other")], ids=["", "config"])
def test_a_configuration_that_is_named_is_used_without_the_variables_of_this_directory(tmp_path, option, used):
    (tmp_path / "config.yaml").write_text("csi: {state_dir: state}\n")
    (tmp_path / "other.yaml").write_text("csi: {state_dir: state, instance_id: other}\n")
    write(tmp_path, f"CSI_CONFIG_PATH={tmp_path}/config.yaml\nCSI_INSTANCE_ID=mine\n").chmod(0o600)
    line = [sys.executable, "-P", "-m", "csi.cli.main", "config", "show", *option]
    env = {name: value for name, value in os.environ.items() if not name.startswith("CSI_")}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert f"instance_id: {used}" in done.stdout, done.stderr


# --- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_for_each_shell(shell):
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_CSI_COMPLETE={shell}_complete" in result.output


def test_completion_knows_commands_and_options():
    env = {"_CSI_COMPLETE": "bash_complete", "COMP_WORDS": "csi events li", "COMP_CWORD": "2"}
    line = [sys.executable, "-c", "from csi.cli.main import run; run()"]
    done = subprocess.run(line, env=os.environ | env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "plain,list\n"


def test_an_unknown_shell_is_refused():
    assert CliRunner().invoke(cli, ["completion", "tcsh"]).exit_code == 2


EVERY_HELP = """
import sys
from types import ModuleType

import click

from csi.cli.main import cli


def walk(command, path):
    with click.Context(command, info_name=path) as context:
        command.get_help(context)
        for name in command.list_commands(context) if isinstance(command, click.Group) else []:
            walk(command.get_command(context, name), f"{path} {name}")
    print(path)


walk(cli, "csi")
print(*sorted(name for name, module in sys.modules.items() if type(module) is ModuleType), file=sys.stderr)
"""


def test_the_help_of_no_command_loads_what_only_its_work_needs():
    done = subprocess.run([sys.executable, "-c", EVERY_HELP], capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) > 100
    assert "csi dlq replay" in done.stdout.splitlines()
    ours = {"csi.runtime", "csi.net", "csi.store.db", "csi.logs", "csi.api_models", "csi.config.settings"}
    assert set(done.stderr.split()) & (ours | HEAVY) == set()


def test_a_slip_of_the_finger_is_put_right():
    done = CliRunner().invoke(cli, ["statsu"])
    assert (done.exit_code, "Did you mean 'status'?" in done.output) == (2, True)


def test_the_choices_of_options_are_those_of_the_code():
    from csi.admin import watches
    from csi.cli import catalog_jobs, dlq, processing, processing_dead_letters, sources
    from csi.dlq import dead_letters
    from csi.jobs.job_kinds import KINDS
    from csi.processing.collection_models import COLLECTIONS, FailureType
    from csi.store.catalog.jobs import OPEN, SETTLED

    assert dead_letters.STATES == dlq.STATES
    assert get_args(FailureType) == processing_dead_letters.FAILURES
    assert (*OPEN, *SETTLED) == catalog_jobs.STATUSES
    assert tuple(KINDS) == catalog_jobs.TYPES
    assert tuple(COLLECTIONS) == processing.COLLECTIONS
    assert {watches.PLAYLISTS, watches.CHANNELS} == set(sources.SHORT)
