"""A disk whose writes fail: a library that is compiled here and preloaded into a process (failing_disk.c)."""

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Literal

import pytest

Mode = Literal["fail", "short", "torn", "sync"]
"""EIO; half of the bytes are written; half, then EIO; EIO at fsync."""

MODES: dict[Mode, int] = {"fail": 1, "short": 2, "torn": 3, "sync": 4}
_MODE, _COUNTED = struct.Struct("=iiqqq"), struct.Struct("=qq")


class FailingDisk:
    """Files below `folder` are on it, for processes that have `env`. Skips where nothing can be compiled."""

    def __init__(self, home: Path, folder: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler (gcc): writes are made to fail by a preloaded library")
        library, control = home / "failing_disk.so", home / "failing_disk.control"
        source = Path(__file__).with_name("failing_disk.c")
        done = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"the library cannot be compiled here: {done.stderr[-200:]}")
        control.write_bytes(bytes(_MODE.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _MODE.size)
        self.env = {
            "LD_PRELOAD": str(library),
            "CSI_FAILING_CONTROL": str(control),
            "CSI_FAILING_DIR": os.path.realpath(folder),
        }

    def fail(self, mode: Mode, *, percent: int = 100) -> None:
        """So many of the writes, from now on."""
        _MODE.pack_into(self._control, 0, MODES[mode], percent, 0, 0, 0)

    def fail_once(self, mode: Mode, nth: int) -> None:
        """The nth write from now, and no other."""
        _MODE.pack_into(self._control, 0, MODES[mode], 0, nth - 1, 0, 0)

    def heal(self) -> None:
        self._control[:4] = bytes(4)

    @property
    def hits(self) -> int:
        """Since the last `fail`."""
        return int(_COUNTED.unpack_from(self._control, 16)[1])

    @property
    def writes(self) -> int:
        return int(_COUNTED.unpack_from(self._control, 16)[0])
