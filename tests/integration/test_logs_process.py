"""Processes log uncaught exceptions and early warnings as lines of our form."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_uncaught_exceptions_become_lines() -> None:
    program = """
import sys, threading
from csi.logs import install_excepthook, setup
setup(format="json", secrets=["hunter2222"]); install_excepthook()
def die(): raise KeyError("thread hunter2222")
thread = threading.Thread(target=die, name="t1"); thread.start(); thread.join()
class Odd:
    def __del__(self): raise OSError("del")
Odd()
raise RuntimeError("main hunter2222")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    got = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert [line["level"] for line in got] == ["ERROR", "ERROR", "CRITICAL"]
    assert got[0]["error"] == "KeyError: 'thread [redacted]'"
    assert got[0]["thread"] == "t1"
    assert got[2]["error"] == "RuntimeError: main [redacted]"
    assert "hunter" not in done.stderr


def test_before_setup_warnings_are_lines_of_ours() -> None:
    program = """
from csi.logs import log
def die(password):
    try: raise ValueError("x")
    except ValueError: log.exception("failed")
log.info("quiet"); die("hunter" + "2222")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["message"] == "failed"
    assert "hunter2222" not in done.stderr
