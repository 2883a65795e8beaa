"""Read the samples of an adapter through a recorded network."""

from collections.abc import Callable
from dataclasses import dataclass

from csi.adapters.base import Position, RawEvent, ReadResult, SourceAdapter, SourceSamples, Tools
from csi.testing.recorded_net import Change, RecordedNet

Adapter = type[SourceAdapter]


# ── reading the samples ─────────────────────────────────────────────────────────────────────────────────


@dataclass
class SampleReader:
    """An adapter that reads its samples, with a clock of its own."""

    kind: Adapter
    samples: SourceSamples
    change: Change = lambda answer: answer
    now: float = 0.0

    def __post_init__(self) -> None:
        self.net = RecordedNet(self.samples, self.change)
        moment = self.now or self.samples.now
        tools = Tools(net=self.net, web=self.net, secret=self.samples.secrets.get, now=lambda: moment)
        self.adapter = self.kind(self.samples.settings, tools)

    def refs(self) -> list[str]:
        settings = self.adapter.settings
        return [watch.ref for watch in settings.watches] if settings.watch_key else [self.kind.name]

    def read(self, ref: str, progress: Callable[[], None] = lambda: None) -> ReadResult:
        watches = {watch.ref: watch for watch in self.adapter.settings.watches}
        via = self.adapter.via_of(watches[ref]) if ref in watches else "feed"
        return self.adapter.read(Position(ref, via=via, progress=progress))

    def items(self) -> list[RawEvent]:
        return [item for ref in self.refs() for item in self.read(ref).items]
