"""A stand-in for the network that answers from an adapter's samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from csi.adapters.base import SampleAnswer, SourceSamples
from csi.errors import NetError
from csi.net import HttpHeaders, HttpResponse, Net

Change = Callable[[SampleAnswer], SampleAnswer]


@dataclass
class RecordedNet(Net):
    """Answers each URL with the sample whose address is the longest beginning of it, and others with 404."""

    samples: SourceSamples
    change: Change = lambda answer: answer
    """Applied to every answer; may raise NetError."""
    requested: list[str] = field(default_factory=list)

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, **_: Any) -> HttpResponse:
        return self._answer(url)

    def post(self, url: str, *, body: bytes, headers: Mapping[str, str], **_: Any) -> HttpResponse:
        return self._answer(url)

    def _answer(self, url: str) -> HttpResponse:
        self.requested.append(url)
        known = [address for address in self.samples.answers if url.startswith(address)]
        given = self.samples.answers[max(known, key=len)] if known else SampleAnswer(b"", status=404)
        answer = self.change(given)
        return HttpResponse(answer.status, HttpHeaders(answer.headers), answer.body, url.partition("?")[0])


def refuse(answer: SampleAnswer) -> SampleAnswer:
    """The network does not answer."""
    raise NetError("the host did not answer", kind="timeout", sent=False)
