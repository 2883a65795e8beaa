"""A control group with a memory limit, of version 1 or 2; skips where none can be made."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

MB = 1_048_576
_HOG = """
import sys, time
held = []
sys.stdin.readline()
for _ in range(int(sys.argv[1]) // 4 + 10):
    held.append(bytearray(b"x" * 4_000_000))
    time.sleep(0.01)
"""
"""Takes a little more than the limit, which ends another process of the group and then this one."""


class MemoryLimit:
    """Processes that join share this much memory."""

    def __init__(self, folder: Path, limit_mb: int) -> None:
        self._folder, self._limit_mb = folder, limit_mb
        is_v2 = (folder / "memory.max").exists()
        (folder / ("memory.max" if is_v2 else "memory.limit_in_bytes")).write_text(str(limit_mb * MB))
        with suppress(OSError):  # swap is not always accounted
            name, value = ("memory.swap.max", "0") if is_v2 else ("memory.memsw.limit_in_bytes", str(limit_mb * MB))
            (folder / name).write_text(value)

    def join(self, pid: int) -> None:
        """The kernel ends this process first."""
        (self._folder / "cgroup.procs").write_text(str(pid))
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")

    @contextmanager
    def exhausted(self) -> Iterator[None]:
        """Another process of the group takes what is left."""
        hog = subprocess.Popen([sys.executable, "-c", _HOG, str(self._limit_mb)], stdin=subprocess.PIPE)
        (self._folder / "cgroup.procs").write_text(str(hog.pid))
        assert hog.stdin is not None
        hog.stdin.write(b"begin\n")
        hog.stdin.flush()
        try:
            yield
        finally:
            hog.kill()
            hog.communicate()


@contextmanager
def memory_limit(name: str, limit_mb: int) -> Iterator[MemoryLimit]:
    tops = [
        path for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if (path / "cgroup.procs").exists()
    ]
    folder = (tops[0] if tops else Path("/sys/fs/cgroup")) / f"{name}-{os.getpid()}"
    try:
        folder.mkdir()
        limit = MemoryLimit(folder, limit_mb)
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    try:
        yield limit
    finally:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:  # its processes are still ending
                subprocess.run(["sleep", "0.1"], check=False)
