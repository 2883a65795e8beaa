"""Send a sample event to a destination, signed and formed as its own events are, and explain the answer."""

from dataclasses import dataclass

from csi import clock
from csi.body_template.sample import SAMPLE_EVENT
from csi.emitter import http
from csi.emitter.failure_cause import failure_cause, in_words
from csi.emitter.verdict import Delivered, PerEvent, Refused, judge
from csi.ingester.signature import new_request_id
from csi.net import HttpResponse
from csi.runtime import Runtime
from csi.store import attempts, batches
from csi.store.db import writing


@dataclass(frozen=True)
class SampleTest:
    """What the receiver answered to the sample event."""

    destination: str
    url: str
    is_good: bool
    status: int | None
    seconds: float
    text: str


def send_sample(rt: Runtime, name: str) -> SampleTest:
    """Sent now, whatever the state of the destination, which stays as it is. A row of `delivery_attempts` records it.
    The receiver gets an event with the event_id of a sample; no row of `events` exists for it."""
    destination, now, request_id = rt.destinations[name], rt.now(), new_request_id()
    form = "ascii" if destination.canonical_json == "auto" else destination.canonical_json
    with writing():
        attempt_id = attempts.start(None, name, request_id, 1, form, now, url=destination.address)
    answer = http.send_events(
        rt.net_to(destination),
        destination.receiver,
        [SAMPLE_EVENT | {"emitted_at": clock.iso(now)}],
        instance_id=rt.settings.csi.instance_id,
        batch_id=batches.new_batch_id(now),
        request_id=request_id,
        form=form,
        now=now,
    )
    ended = rt.now()
    verdict = judge(answer, 1, ended, destination.profile.answers)
    is_good = isinstance(verdict, Delivered) or (isinstance(verdict, PerEvent) and not verdict.refused)
    status = answer.status if isinstance(answer, HttpResponse) else None
    if is_good:
        reason, text = "", "the sample event was accepted"
    elif isinstance(verdict, PerEvent):
        said = verdict.refused[0] or "refused"
        reason, text = f"http 207: {said}", f"it refuses the event; it says: {said}"
    else:
        reason = getattr(verdict, "reason", "")
        # Where the receiver objects to this event, its words say why.
        text = in_words(reason)
        if not isinstance(verdict, Refused):
            text += f"; {failure_cause(reason).remedy}"
    with writing():
        outcome = "test_ok" if is_good else "test_failed"
        attempts.finish(attempt_id, outcome, ended, status=status, reason=reason)
    return SampleTest(name, destination.address, is_good, status, ended - now, text)
