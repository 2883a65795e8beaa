"""The conformance suite: our own adapters pass it, and each check finds the fault it is for."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict

from csi.adapters import registry
from csi.adapters.base import Position, RawEvent, ReadResult, SourceSamples
from csi.adapters.feed import FeedAdapter, FeedSettings
from csi.errors import SourceError
from csi.ingester.event import CreatorSignalEvent
from csi.testing import CHECKS, AdapterConformance
from csi.testing.conformance import faults_of


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", registry.ADAPTERS)
def test_our_own_adapters_pass(name: str, check: str) -> None:
    adapter = registry.installed()[name].adapter
    assert adapter is not None
    assert faults_of(CHECKS[check], adapter) == ()


class TestAsAClass(AdapterConformance):
    """What a plugin writes."""

    adapter = FeedAdapter


class LooseSettings(FeedSettings):
    """Accepts every key."""

    model_config = ConfigDict(extra="ignore")


def _counted(self: FeedAdapter, raw: RawEvent) -> CreatorSignalEvent:
    event = FeedAdapter.normalize(self, raw)
    return event.model_copy(update={"event_id": f"{event.event_id}:{random.random()}"})


def _asks(self: FeedAdapter, raw: RawEvent) -> CreatorSignalEvent:
    self.tools.web.get("https://www.example.org/more")
    return FeedAdapter.normalize(self, raw)


def _changes(self: FeedAdapter, raw: RawEvent) -> CreatorSignalEvent:
    raw.payload["seen"] = True
    return FeedAdapter.normalize(self, raw)


def _opens(self: FeedAdapter, position: Position) -> ReadResult:
    Path("/proc/self/status").read_text()
    return FeedAdapter.read(self, position)


def _swallows(self: FeedAdapter, position: Position) -> ReadResult:
    try:
        position.progress()
    except SourceError as error:
        raise SourceError("it went wrong", kind="transient") from error
    return FeedAdapter.read(self, position)


def _crashes(self: FeedAdapter, position: Position) -> ReadResult:
    try:
        return FeedAdapter.read(self, position)
    except SourceError as error:
        raise KeyError("items") from error


@pytest.mark.parametrize(
    ("check", "changed"),
    [
        ("interface", {"Settings": LooseSettings}),
        ("samples", {"samples": classmethod(lambda cls: SourceSamples({"feeds": []}))}),
        ("samples", {"samples": classmethod(lambda cls: SourceSamples({"feeds": [{"url": "https://x.org/"}]}))}),
        ("identity", {"normalize": _counted}),
        ("normalization", {"normalize": _asks}),
        ("normalization", {"normalize": _changes}),
        ("dedupe_keys", {"key_stems": ("other:",)}),
        ("dedupe_keys", {"item_key": lambda self, raw: f"feed:{time.monotonic_ns()}"}),
        ("bad_input", {"read": _crashes}),
        ("cancellation", {"read": _swallows}),
        ("io", {"read": _opens}),
    ],
)
def test_each_check_finds_its_fault(check: str, changed: dict[str, Any]) -> None:
    spoiled = type("Spoiled", (FeedAdapter,), changed)
    assert faults_of(CHECKS[check], spoiled)
