"""The wheel outside the repository: complete, not shadowed by the user's files, and with each extra by itself."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from csi import __version__
from csi.cli.version import EXTRAS
from ops import man
from tests.fakes.background_server import serve_in_background
from tests.fakes.pages import ROOT
from tests.rigs import clean_environment
from tests.rigs.processes import Installation, installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packages")]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of an environment with the wheel and no extra."""
    home = tmp_path_factory.mktemp("package")
    return clean_environment.install(home / "environment", clean_environment.build_wheel(home))


@pytest.fixture
def box(tmp_path: Path):
    with installation(tmp_path, channels=0, playlists=1) as built:
        yield built


def outside(box: Installation, *line: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of the installation, without the repository on Python's path."""
    return box.run(*map(str, line), PYTHONPATH="", **env)


def test_everything_that_a_user_needs_is_in_the_package(box, commands):
    csi = commands / "csi"
    assert outside(box, csi, "version").stdout.startswith(f"csi {__version__} ")
    assert outside(box, commands / "python", "-m", "csi", "--version").stdout == f"csi, version {__version__}\n"
    config = outside(box, csi, "examples", "config.yaml").stdout
    assert config == (ROOT / "config/config.example.yaml").read_text()
    listed = outside(box, csi, "examples").stdout.split()
    assert {"env", "csi.rules.yml", "grafana.json", "systemd/csi-worker.service"} <= set(listed)
    assert "# Runbook" in outside(box, csi, "docs", "runbook").stdout
    shared = {path.name for path in (commands.parent / "share").rglob("*") if path.is_file()}
    assert shared == set(man.texts()) - {"csi.bash"} | {"csi"}, "bash looks for the name of the command"
    site = next(commands.parent.glob("lib/python*/site-packages"))
    assert (site / "csi/py.typed").exists()
    assert all((site / "csi/examples" / name).exists() for name in listed)
    for kind in ("templates/*.html", "static/*"):
        there, here = ({path.name for path in root.glob(f"csi/web/{kind}")} for root in (site, ROOT))
        assert there == here


def test_an_unknown_example_is_said_with_those_that_exist(box, commands):
    done = outside(box, commands / "csi", "examples", "nothing")
    assert done.returncode == 1
    assert done.stderr.startswith("csi: there is no example 'nothing'; there are: config.yaml, env, ")


def test_files_of_the_user_with_the_names_of_ours_are_not_imported(box, commands):
    for name in ("tasks.py", "huey_config.py"):
        (box.home / name).write_text(f"raise SystemExit('{name} of the user was imported')\n")
    with socket.create_server(("127.0.0.1", 0)) as door:
        box.change(lambda config: config.update(web={"port": door.getsockname()[1]}))
    assert outside(box, commands / "python", "-m", "csi", "tasks", "--help").returncode == 0
    box.yt.add(box.yt.playlists[0], "Delivered all the same")
    process = box.start(str(commands / "csi"), "run", "--workers", "2", PYTHONPATH="")
    box.wait_for_delivered(1)
    process.terminate()
    assert process.wait(60) == 0
    assert "of the user was imported" not in box.log.read_text()


def test_a_plugin_from_a_wheel_is_read_by_the_worker_of_a_clean_environment(box, commands, tmp_path):
    """The example of docs/adapters.md: installed as a stranger installs it, configured by name, delivered."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    pip = [sys.executable, "-m", "pip"]
    example = ROOT / "tests/data/example_source"
    subprocess.run(
        [*pip, "wheel", *quiet, "--no-build-isolation", "--wheel-dir", str(tmp_path), str(example)], check=True
    )
    (wheel,) = tmp_path.glob("csi_notes-*.whl")
    subprocess.run([*pip, "--python", str(commands / "python"), "install", *quiet, str(wheel)], check=True)
    note = {"id": 1, "title": "First", "url": "https://notes.example.org/1", "published": "2026-02-20T12:00:00Z"}
    notes = Starlette(routes=[Route("/notes.json", lambda _: JSONResponse({"notes": [note]}))])
    with serve_in_background(notes) as url, socket.create_server(("127.0.0.1", 0)) as door:
        block = {"first_poll": "all", "poll_interval_seconds": 1, "lists": [{"url": f"{url}/notes.json"}]}
        net = {"allowed_private_hosts": [url.removeprefix("http://")]}
        box.change(lambda config: config.update(sources={"notes": block}, net=net, web={"port": door.getsockname()[1]}))
        assert outside(box, commands / "csi", "adapters", "test", "notes").returncode == 0
        assert outside(box, commands / "csi", "config", "check").returncode == 0
        process = box.start(str(commands / "csi"), "run", "--workers", "2", "--no-web", PYTHONPATH="")
        box.wait_for_delivered(1)
        process.terminate()
        assert process.wait(60) == 0
    assert box.rows("SELECT source, event_type FROM events") == [("notes", "note_published")]


def test_the_table_of_extras_is_that_of_the_project():
    assert set(EXTRAS) == {name for name, lines in clean_environment.EXTRAS.items() if lines}


UNREACHABLE = "127.0.0.1:1"
NEEDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "redis": (("tasks", "list"), {"CSI_QUEUE_URL": f"redis://{UNREACHABLE}/0"}),
    "postgres": (("db", "status"), {"CSI_DATABASE_URL": f"postgresql://{UNREACHABLE}/x"}),
    "notify": (("notify", "test"), {"CSI_NOTIFY_URLS": f"json://{UNREACHABLE}/"}),
    "mcp": (("mcp",), {}),
}
"""For each extra whose absence is an error: a command that uses it, with its variables."""


@pytest.mark.faults
@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_brings_its_module_and_a_command_that_needs_it_names_it(box, commands, tmp_path, extra):
    python = clean_environment.with_extra(tmp_path / "environment", commands, extra)
    said = json.loads(outside(box, python, "-P", "-m", "csi", "version", "--json").stdout)
    assert {name for name, there in said["extras"].items() if there} == {extra}
    if extra not in NEEDS:
        return
    line, env = NEEDS[extra]
    assert outside(box, commands / "csi", "db", "migrate").returncode == 0
    without = outside(box, commands / "csi", *line, **env)
    assert without.returncode != 0
    assert f"pip install 'creator-signals[{extra}]'" in without.stderr + without.stdout
    done = outside(box, python, "-P", "-m", "csi", *line, **env)
    assert "pip install" not in done.stderr + done.stdout
    assert "Traceback" not in without.stderr + done.stderr


def test_a_service_whose_configuration_needs_a_missing_extra_says_so(box, commands):
    done = outside(box, commands / "csi", "run", CSI_QUEUE_URL=f"redis://{UNREACHABLE}/0", CSI_QUEUE_SECRET="x1" * 16)
    assert done.returncode == 3
    assert "pip install 'creator-signals[redis]'" in done.stderr
    assert "Traceback" not in done.stderr
