"""Lazy module loading, so that `csi … --help` and shell completion do not load the database and HTTP libraries."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

_LAZY_LIBRARIES = ("pydantic", "yaml")
"""Libraries that a command's module imports directly."""


class _LazyFinder(MetaPathFinder):
    """Finds modules as usual, and lets them load at the first attribute access.

    Only a module import is lazy: `from csi import runtime` is, `from csi.runtime import Runtime` loads it at once.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname.startswith(("csi.", "tasks.")) and not fullname.startswith(("csi.cli", "tasks.cli"))
        if not ours and fullname not in _LAZY_LIBRARIES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def lazy_imports() -> Iterator[None]:
    """Modules imported in this block are loaded when they are first used."""
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
