"""A process whose wall clock is wrong: `… FILE MODULE [ARGUMENT …]` runs MODULE, and FILE holds the seconds to add.

The file is read several times a second, so that a test can set the clock while the process runs. `86400 passed` in it:
that much time went by, as in a suspended machine, so the clock of the boot is shifted, too.
"""

import contextlib
import os
import runpy
import sys
import threading
import time
from pathlib import Path

READ_SECONDS = 0.2

_real, _real_clock = time.time, time.clock_gettime
_shift, _passed = [0.0], [0.0]


def _follow(path: Path) -> None:
    while True:
        with contextlib.suppress(OSError, ValueError):
            seconds, _, how = path.read_text().partition(" ")
            _shift[0] = float(seconds)
            _passed[0] = float(seconds) if how else 0.0
        time.sleep(READ_SECONDS)


def main() -> None:
    path, module, *arguments = sys.argv[1:]
    threading.Thread(target=_follow, args=(Path(path),), daemon=True).start()
    time.time = lambda: _real() + _shift[0]
    time.clock_gettime = lambda clock: _real_clock(clock) + (_passed[0] if clock == time.CLOCK_BOOTTIME else 0.0)
    real_execv = os.execv
    # A process that replaces itself, as huey_consumer does to be rid of drivers, keeps the wrong clock.
    again = [sys.executable, "-m", "tests.fakes.shifted_clock", path]
    os.execv = lambda python, line: real_execv(python, [*again, *line[line.index("-m") + 1 :]])
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
