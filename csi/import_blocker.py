"""Import libraries without optional modules that CSI does not use, which saves memory in every process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*modules: str) -> Iterator[None]:
    """While the block runs, importing these modules fails as if they were not installed. Modules that are loaded
    already stay; later imports work again."""
    hidden = [name for name in modules if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
