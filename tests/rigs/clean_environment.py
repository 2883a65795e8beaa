"""Virtual environments with CSI's wheel, its dependencies and one extra, and nothing else. No network is needed."""

import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fakes.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def build_wheel(target: Path) -> Path:
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = target.glob("creator_signals-*.whl")
    return wheel


def install(place: Path, wheel: Path) -> Path:
    """Its directory of commands. The wheel is installed; its dependencies are links to the packages of this Python."""
    site = _with_dependencies(place, PROJECT["dependencies"])
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    line = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", *quiet, str(wheel)]
    subprocess.run(line, check=True, capture_output=True, timeout=120)
    assert (site / "huey_config.py").exists()
    return place / "bin"


def with_extra(place: Path, installed: Path, extra: str) -> Path:
    """The interpreter of another environment, with the same CSI and one extra."""
    site = _with_dependencies(place, [*PROJECT["dependencies"], *EXTRAS[extra]])
    for ours in next(installed.parent.glob("lib/python*/site-packages")).iterdir():
        if ours.name.startswith(("csi", "tasks", "huey_config", "creator_signals")):
            (site / ours.name).symlink_to(ours)
    return place / "bin" / "python"


def _with_dependencies(place: Path, wanted: list[str]) -> Path:
    venv.create(place, with_pip=False, symlinks=True)
    site = next(place.glob("lib/python*/site-packages"))
    for found in _closure(wanted):
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(found.locate_file(top)))
    return site


def _closure(lines: list[str]) -> list[metadata.Distribution]:
    """These requirements and what they need, as this machine would install them."""
    todo = [Requirement(line) for line in lines]
    done: dict[tuple[str, frozenset[str]], metadata.Distribution] = {}
    while todo:
        wanted = todo.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in done:
            continue
        done[key] = found = metadata.distribution(wanted.name)
        for inner in map(Requirement, found.requires or ()):
            environments = [{"extra": name} for name in ("", *wanted.extras)]
            if inner.marker is None or any(inner.marker.evaluate(each) for each in environments):
                todo.append(inner)
    return list(done.values())
