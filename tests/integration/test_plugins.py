"""Sources of other packages: a wheel is built, installed beside CSI and run; a broken one hinders no other."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest
import yaml
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from csi.adapters import registry
from csi.adapters.base import SourceAdapter
from csi.config.loader import read_config
from csi.net import Net
from csi.pipeline import schedule
from csi.runtime import Runtime
from csi.status import source_problems
from csi.status.facts import SystemFacts
from csi.status.worker import WorkerStatus
from tests.fakes.background_server import serve_in_background
from tests.fakes.pages import ROOT, blocks

EXAMPLE = ROOT / "tests" / "data" / "example_source"
NOTES = [{"id": 1, "title": "First", "url": "https://notes.example.org/1", "published": "2026-02-20T12:00:00Z"}]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the wheel of the example is installed."""
    home = tmp_path_factory.mktemp("plugin")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    build = [*pip, "wheel", "--no-build-isolation", *offline, "--wheel-dir", str(home), str(EXAMPLE)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    subprocess.run([*pip, "install", *offline, "--target", str(home / "site"), str(wheel)], check=True)
    return home / "site"


@pytest.fixture
def notes() -> Iterator[str]:
    with serve_in_background(Starlette(routes=[Route("/notes.json", lambda _: JSONResponse({"notes": NOTES}))])) as url:
        yield f"{url}/notes.json"


class Clean:
    """An installation with the wheel on its path."""

    def __init__(self, home: Path, site: Path, lists: list[dict[str, str]], host: str) -> None:
        self.config = home / "config.yaml"
        block = {"first_poll": "all", "lists": lists}
        settings = {
            "csi": {"state_dir": str(home / "state"), "log_level": "ERROR"},
            "sources": {"notes": block},
            "net": {"allowed_private_hosts": [host]},
        }
        self.config.write_text(yaml.safe_dump(settings, sort_keys=False))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CSI_", "YOUTUBE_"))}
        self.env = kept | {"PYTHONPATH": str(site), "CSI_CONFIG_PATH": str(self.config)}

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "csi.cli.main", *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, cwd=self.config.parent)


def test_the_wheel_is_installed_and_run_without_touching_our_code(site, notes, tmp_path):
    csi = Clean(tmp_path, site, [], notes.split("/")[2])
    tested = json.loads(csi("adapters", "test", "notes", "--json").stdout)
    assert (tested["ok"], len(tested["checks"])) == (True, 8)
    listed = json.loads(csi("adapters", "list", "--json").stdout)["adapters"]
    assert [one["package"] for one in listed if one["name"] == "notes"] == ["csi-notes 0.1.0"]
    added = csi("sources", "add", notes)
    assert "watching the notes" in added.stdout, added.stderr
    polled = csi("sources", "poll", notes, "--json")
    assert json.loads(polled.stdout)["new_items"] == 1, polled.stderr
    (event,) = json.loads(csi("events", "list", "--json").stdout)["events"]
    assert (event["source"], event["event_type"]) == ("notes", "note_published")


def test_an_error_in_a_plugins_block_has_line_and_column(site, tmp_path):
    csi = Clean(tmp_path, site, [{"url": "https://notes.example.org/other"}], "127.0.0.1:1")
    result = csi("config", "check")
    assert result.returncode == 3
    assert "config.yaml:8:12: sources.notes.lists[0].url: expected a URL that ends with /notes.json" in result.stderr


def test_the_page_shows_the_files_of_the_example():
    page = ROOT / "docs" / "adapters.md"
    (module,), (project, _, usage) = blocks(page, "python"), blocks(page, "")
    assert module.text == (EXAMPLE / "csi_notes.py").read_text()
    assert project.text == (EXAMPLE / "pyproject.toml").read_text()
    assert "AdapterConformance" in usage.text


# --- broken plugins


class _Package(Distribution):
    """An installed package of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str:
        return f"Name: {self._name}\nVersion: 1\n"

    def locate_file(self, path):  # type: ignore[no-untyped-def]
        return Path(path)


class WithoutName(SourceAdapter):
    """Lacks `name`, and the methods."""


class NoAdapter:
    """Not an adapter at all."""


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Pretends that these entry points are installed: (name, value, package)."""

    def caches() -> None:
        registry.plugins.cache_clear()
        registry.name_clashes.cache_clear()

    def these(*points: tuple[str, str, str]) -> None:
        found = [EntryPoint(name, value, registry.GROUP)._for(_Package(package)) for name, value, package in points]
        monkeypatch.setattr(registry, "entry_points", lambda group: found)
        caches()

    yield these
    caches()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no_such_module:Adapter", "cannot be imported: ModuleNotFoundError"),
        (f"{__name__}:Missing", "cannot be imported: AttributeError"),
        (f"{__name__}:NoAdapter", "does not name a subclass"),
        (f"{__name__}:WithoutName", "WithoutName lacks fetch_events, get_dedupe_key, normalize"),
        ("csi.adapters.feed:FeedAdapter", "name is 'feed', and the entry point's name is 'broken'"),
    ],
)
def test_a_broken_plugin_has_a_clear_fault_and_the_rest_goes_on(install, tmp_path, value, says):
    install(("broken", value, "some-package"))
    assert says in str(registry.plugins()["broken"].fault)
    file = tmp_path / "config.yaml"
    file.write_text("sources:\n  broken:\n    whatever: [1]\n  feed:\n    feeds: [{url: 'https://example.org/feed'}]\n")
    loaded = read_config(file, env={}, sources=registry.settings_models())
    (fault,) = loaded.faults
    assert fault.startswith(f"{file}:2:3: sources.broken: its plugin cannot be used")
    assert says in fault
    rt = Runtime(loaded.settings, Net())
    assert rt.enabled_sources() == ["feed"]
    assert [one.ref for one in schedule.configured_watches(rt, "feed")] == ["https://example.org/feed"]
    facts = SystemFacts(0.0, WorkerStatus.__new__(WorkerStatus), unusable_sources=tuple(rt.unusable_sources()))
    (problem, *_) = source_problems.problems(facts)
    assert (problem.id, problem.subject, problem.severity) == ("source_unusable", "broken", "degraded")


def test_a_broken_plugin_that_is_switched_off_is_no_problem(install, tmp_path):
    install(("broken", "no_such_module:Adapter", "some-package"))
    file = tmp_path / "config.yaml"
    file.write_text("sources:\n  broken: {enabled: false, whatever: 1}\n")
    loaded = read_config(file, env={}, sources=registry.settings_models())
    assert loaded.faults == ()
    assert Runtime(loaded.settings, Net()).unusable_sources() == []


def test_a_plugin_with_the_name_of_a_built_in_source_is_reported_and_not_used(install):
    install(("feed", f"{__name__}:NoAdapter", "other-feed"))
    assert registry.installed()["feed"].package is None
    (clash,) = registry.name_clashes()
    assert (clash.package, "belongs to a source of CSI itself" in str(clash.fault)) == ("other-feed 1", True)


def test_a_name_of_two_packages_is_used_by_neither(install):
    install(("twice", f"{__name__}:NoAdapter", "package-a"), ("twice", f"{__name__}:NoAdapter", "package-b"))
    assert registry.plugins()["twice"].fault == (
        "package-a 1 and package-b 1 bring a source of this name; uninstall all but one"
    )
