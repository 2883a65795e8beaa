"""Libraries without what they load beside and nobody here uses: every process is smaller for it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*modules: str) -> Iterator[None]:
    """While a library is imported, these look as if they were not installed. What is loaded already stays; later
    imports find them again."""
    hidden = [name for name in modules if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
