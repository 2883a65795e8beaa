"""The demo's processes start, are watched, and are stopped."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from csi.demo.processes import ChildError, ChildProcesses, StoppedBySignal, StopSignals
from csi.demo.run import state_directory
from csi.errors import CsiError

POLITE = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + POLITE
BROKEN = "import sys\nsys.stderr.write('one\\n\\x1b[31mno such thing\\n')\nsys.exit(3)\n"


@pytest.fixture
def children(tmp_path: Path) -> ChildProcesses:
    for name, code in {"polite": POLITE, "stubborn": STUBBORN, "broken": BROKEN}.items():
        (tmp_path / f"{name}.py").write_text(code)
    return ChildProcesses(tmp_path, tmp_path, {**os.environ, "PYTHONPATH": str(tmp_path)}, StopSignals())


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() if sys.platform == "linux" else os.getpgid(pid) > 0


def ready(text: str) -> bool | None:
    return "ready" in text or None


def test_leaving_the_context_stops_all_processes(children: ChildProcesses) -> None:
    with children:
        children.start("worker", ["polite"])
        children.start("receiver", ["polite"])
        children.await_output("worker", ready)
        pids = children.pids
        assert all(is_running(pid) for pid in pids.values())
        assert os.getsid(pids["worker"]) == pids["worker"]
    assert not any(is_running(pid) for pid in pids.values())


def test_an_exception_stops_all_processes(children: ChildProcesses) -> None:
    with pytest.raises(RuntimeError), children:
        children.start("worker", ["polite"])
        raise RuntimeError
    assert not is_running(children.pids["worker"])


def test_a_process_that_ignores_sigterm_is_killed(children: ChildProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("csi.demo.processes.GRACE_SECONDS", 0.2)
    with children:
        children.start("worker", ["stubborn"])
        children.await_output("worker", ready)
    assert not is_running(children.pids["worker"])


def test_an_exited_process_is_reported_with_the_end_of_its_log(children: ChildProcesses) -> None:
    with pytest.raises(ChildError) as caught, children:
        children.start("worker", ["broken"])
        children.await_output("worker", ready)
    text = str(caught.value)
    assert "the worker exited unexpectedly (exit code 3)" in text
    assert "no such thing" in text
    assert "\x1b" not in text


def test_a_process_that_does_not_start_in_time_is_reported(
    children: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("csi.demo.processes.START_SECONDS", 0.2)
    with pytest.raises(ChildError, match="the worker did not start"), children:
        children.start("worker", ["polite"])
        children.await_output("worker", lambda text: None)


def test_signals_are_recorded_and_handlers_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals().handled() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: signals.interrupts == 1)
        signals.check()
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: signals.terminated_by is not None)
        with pytest.raises(StoppedBySignal) as caught:
            signals.check()
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_ends_waiting_for_a_process(children: ChildProcesses, tmp_path: Path) -> None:
    signals = StopSignals()
    signals.interrupts = 1
    with pytest.raises(StoppedBySignal) as caught, ChildProcesses(tmp_path, tmp_path, os.environ, signals) as family:
        family.start("worker", ["polite"])
        family.await_output("worker", lambda text: None)
    assert caught.value.exit_code == 130


def test_the_state_directory_is_removed_unless_it_is_kept(tmp_path: Path) -> None:
    with state_directory(None) as home:
        (home / "file").touch()
        assert home.stat().st_mode & 0o077 == 0
    assert not home.exists()
    with state_directory(str(tmp_path / "kept")) as kept:
        (kept / "file").touch()
    assert (kept / "file").exists()
    with pytest.raises(CsiError, match="choose a new or empty directory"), state_directory(str(kept)):
        pass


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
