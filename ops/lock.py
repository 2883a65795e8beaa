"""Writes requirements.lock (what runs: extras, build backend) and requirements-dev.lock (what tests and tools
need beside it): every version and hash for all platforms, no index address."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
RUNTIME, DEVELOPMENT = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
HEADERS = {
    RUNTIME: "# Made by `make lock` from pyproject.toml: what the installer and the image install, with hashes.\n",
    DEVELOPMENT: "# Made by `make lock` from pyproject.toml: what tests and tools need beside requirements.lock.\n",
}
_ENTRY = re.compile(r"^(?=\S)", re.MULTILINE)
LARGE = "parquet"
"""The extra that installer and image leave out: it is larger than everything else together. Tests need it."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def runtime_requirements() -> list[str]:
    """With all extras but the large one, and with the backend that builds the wheel from a checkout."""
    project = _pyproject()
    extras = [line for name, lines in _extras().items() if name != LARGE for line in lines]
    return [*project["project"]["dependencies"], *extras, *project["build-system"]["requires"]]


def development_requirements() -> list[str]:
    project = _pyproject()
    own = project["project"]["name"]
    return [*_extras()[LARGE], *(line for line in project["dependency-groups"]["dev"] if Requirement(line).name != own)]


def entries(text: str) -> dict[str, str]:
    """Name and marker of each locked package, with its lines."""
    found = [part for part in _ENTRY.split(text) if part and not part.startswith("#")]
    return {part.split("\\")[0].strip(): part for part in found}


def names(text: str) -> set[str]:
    return {match[0] for entry in entries(text) if (match := _NAME.match(entry))}


def main() -> None:
    runtime = _compile(runtime_requirements())
    RUNTIME.write_text(HEADERS[RUNTIME] + runtime)
    everything = _compile([*runtime_requirements(), *development_requirements()], "--constraints", str(RUNTIME))
    # By name and marker: what the runtime needs on one platform only, a tool may need on all.
    locked = entries(runtime)
    beside = [lines for entry, lines in entries(everything).items() if entry not in locked]
    DEVELOPMENT.write_text(HEADERS[DEVELOPMENT] + "".join(beside))


def _compile(requirements: list[str], *more: str) -> str:
    command = ["uv", "pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes", *more]
    options = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    try:
        text = "\n".join(requirements)
        return subprocess.run([*command, *options], input=text, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        sys.exit("make lock needs uv on the PATH: pip install uv")
    except subprocess.CalledProcessError as error:
        sys.exit(f"uv could not resolve the requirements:\n{error.stderr}")


def _extras() -> dict[str, list[str]]:
    return _pyproject()["project"]["optional-dependencies"]


def _pyproject() -> dict[str, dict]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


if __name__ == "__main__":
    main()
