"""Imports that wait: a command names what it works with, and loads it when it runs. `--help` never does."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

_THEIRS = ("pydantic", "yaml")
"""Libraries that a command's module names itself."""


class _Waiting(MetaPathFinder):
    """Finds what commands are made with as usual, and has it loaded when it is first touched.

    Only a module can wait: `from csi import runtime` does, `from csi.runtime import Runtime` touches it at once.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname.startswith(("csi.", "tasks.")) and not fullname.startswith(("csi.cli", "tasks.cli"))
        if not ours and fullname not in _THEIRS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def waiting() -> Iterator[None]:
    """What is imported meanwhile waits."""
    finder = _Waiting()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
