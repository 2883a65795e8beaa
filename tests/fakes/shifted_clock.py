"""A process whose wall clock is wrong: `… FILE MODULE [ARGUMENT …]` runs MODULE, and FILE holds the seconds to add.

The file is read several times a second, so that a test can set the clock while the process runs.
"""

import contextlib
import runpy
import sys
import threading
import time
from pathlib import Path

READ_SECONDS = 0.2

_real = time.time
_shift = [0.0]


def _follow(path: Path) -> None:
    while True:
        with contextlib.suppress(OSError, ValueError):
            _shift[0] = float(path.read_text())
        time.sleep(READ_SECONDS)


def main() -> None:
    path, module, *arguments = sys.argv[1:]
    threading.Thread(target=_follow, args=(Path(path),), daemon=True).start()
    time.time = lambda: _real() + _shift[0]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
