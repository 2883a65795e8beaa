"""The licence of every runtime dependency is known and allowed: permissive, or weak copyleft that linking permits."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
ALLOWED = re.compile(r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla Public|LGPL|Unlicense", re.I)
WITHOUT_A_FIELD = {"huey": "MIT", "peewee": "MIT"}
"""Distributions whose metadata name no licence; it is in their LICENSE file."""


def runtime_licences() -> dict[str, str]:
    """By distribution, over the dependencies of all extras. One that is not installed is not looked at."""
    extras = [name for names in PROJECT["optional-dependencies"].values() for name in names]
    todo, found = [Requirement(name) for name in (*PROJECT["dependencies"], *extras)], dict[str, str]()
    while todo:
        name = canonicalize_name(todo.pop().name)
        if name in found:
            continue
        try:
            there = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        facts = there.metadata
        classifiers = [text for text in facts.get_all("Classifier") or [] if text.startswith("License")]
        found[name] = facts.get("License-Expression") or " ".join(classifiers) or (facts.get("License") or "")[:100]
        wanted = [Requirement(text) for text in there.requires or []]
        todo += [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found | {name: text for name, text in WITHOUT_A_FIELD.items() if not found.get(name)}


def test_every_runtime_dependency_has_an_allowed_licence():
    found = runtime_licences()
    assert len(found) > 20
    assert {name: text for name, text in found.items() if not ALLOWED.search(text)} == {}
