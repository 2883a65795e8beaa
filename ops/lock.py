"""Rewrites requirements.lock: every version and hash of a development install, for all platforms, no index address."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = "# Made by `make lock` from pyproject.toml. Versions and hashes of everything that is installed.\n"


def requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    development = [line for line in project["dependency-groups"]["dev"] if not line.startswith("csi[")]
    optional = [line for lines in extras.values() for line in lines]
    return [*project["project"]["dependencies"], *optional, *development]


def main() -> None:
    command = ["uv", "pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes"]
    options = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    try:
        text = "\n".join(requirements())
        done = subprocess.run([*command, *options], input=text, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        sys.exit("make lock needs uv on the PATH: pip install uv")
    except subprocess.CalledProcessError as error:
        sys.exit(f"uv could not resolve the requirements:\n{error.stderr}")
    (ROOT / "requirements.lock").write_text(HEADER + done.stdout)


if __name__ == "__main__":
    main()
