"""Processing's queue: when a wake-up is scheduled."""

import datetime
import importlib
import sys

from csi.processing.runtime import StepWake


def test_a_wake_up_is_scheduled_with_fractions_of_a_second(tmp_path, monkeypatch):
    monkeypatch.setenv("CSI_PROCESSING_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("CSI_PROCESSING_CONFIG", raising=False)
    monkeypatch.delitem(sys.modules, "tasks.processing", raising=False)
    queue = importlib.import_module("tasks.processing")
    at = datetime.datetime(2030, 1, 2, 3, 4, 5, 750_000, datetime.UTC)
    queue.dispatch([StepWake("transcribe", "tr_vid00000001", at.timestamp())])
    (task,) = queue.huey.scheduled()
    assert (task.args, task.eta) == (("transcribe", "tr_vid00000001"), at.replace(tzinfo=None))
    monkeypatch.delitem(sys.modules, "tasks.processing")
