"""Tests for source adapters: the conformance suite that CSI's own adapters pass, for pytest and `csi adapters test`."""

from csi.testing.conformance import CHECKS, AdapterConformance, CheckResult, examine
from csi.testing.recorded_net import RecordedNet

__all__ = ["CHECKS", "AdapterConformance", "CheckResult", "RecordedNet", "examine"]
