"""A small file system for a state directory: it can be filled and become read-only."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of its own, so that filling it hurts nobody. Skips where it cannot be mounted."""
    path.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("a small file system can only be mounted by root")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(path)], check=False)
    if done.returncode != 0:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    """Use up what is left, to the last block."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return ballast


def free(path: Path) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def remount(path: Path, mode: str) -> bool:
    return subprocess.run(["mount", "-o", f"remount,{mode}", str(path)], check=False).returncode == 0
