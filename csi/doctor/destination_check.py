"""Test a destination with a signed empty batch, and explain the receiver's answer."""

from dataclasses import dataclass
from typing import Any, Literal

from csi.emitter import http
from csi.emitter.destination import Destination
from csi.emitter.failure_cause import REFUSES_ALL, failure_cause, in_words
from csi.emitter.verdict import (
    ClockOff,
    Delivered,
    EndpointFault,
    PerEvent,
    Refused,
    Throttled,
    Transient,
    Verdict,
    clock_difference,
    judge,
)
from csi.errors import MissingSetting, NetError
from csi.ingester.signature import TOLERANCE_SECONDS, Form, canonical, new_request_id
from csi.net import HttpResponse
from csi.pipeline import destination_state, settle
from csi.runtime import Runtime
from csi.status.destinations import NO_COUNTS
from csi.store import attempts, batches, destinations
from csi.store.db import writing
from csi.store.destinations import DestinationRow

Forms = Literal["ascii", "utf8", "both", "unknown"]

MARK = {"csi_probe": "é"}
"""An envelope field with one letter beyond ASCII, which the two canonical forms write differently."""

_LET_IN = (Delivered, PerEvent, Refused)


@dataclass(frozen=True)
class Exchange:
    """One request of a test, and its answer."""

    form: Form
    answer: HttpResponse | NetError
    verdict: Verdict
    seconds: float
    clock_ahead: float | None

    @property
    def status(self) -> int | None:
        return self.answer.status if isinstance(self.answer, HttpResponse) else None

    @property
    def is_let_in(self) -> bool:
        """Address, token and signature were right: the receiver read the request, also where it refused it."""
        return isinstance(self.verdict, _LET_IN)


@dataclass(frozen=True)
class Checkup:
    """The result of a test."""

    destination: str
    url: str
    is_good: bool
    status: int | None
    seconds: float
    text: str
    remedy: str | None
    """What the operator does; None: nothing is wrong."""
    forms: Forms
    forms_text: str
    clock_ahead: float | None
    clock_text: str
    certificate_expires_at: float | None
    note: str | None
    """What the operator should know once about this receiver."""


def check(rt: Runtime, name: str) -> Checkup:
    """Send now, also while the circuit breaker is open or delivery is paused. Stores which form is accepted, and what
    the answer shows of the receiver; the circuit stays as it is, and the worker's next probe closes it."""
    destination = rt.destinations[name]
    if not destination.profile.takes_empty_batch:
        return _without_request(rt, destination)
    if not (destination.receiver.url and destination.receiver.key):
        raise MissingSetting(f"delivery to {name} is not configured: its endpoint or its secret is not set")
    known = destinations.get(name).json_form
    first = _ask(rt, destination, destination.form(known), {})
    forms, words = _find_forms(rt, destination, first, known)
    with writing():
        row = settle.note_seen(name, first.answer)
        # While it is throttled its events wait, whatever it answers to an empty batch.
        if first.is_let_in and row.circuit == "closed" and not destination_state.is_throttled(row, rt.now()):
            after = destination_state.tested(row, rt.now(), events_fail=destinations.failing_batches(row) > 0)
            row = destination_state.write(row, after)
    if not first.is_let_in:
        text, remedy = explain(first), failure_cause(getattr(first.verdict, "reason", None)).remedy
    elif refuses_events(row):
        text, remedy = explain_refusal(row), failure_cause(row.reason).remedy
    else:
        text, remedy = explain(first), None
    return Checkup(
        destination=name,
        url=destination.address,
        is_good=first.is_let_in and not refuses_events(row),
        status=first.status,
        seconds=first.seconds,
        text=text,
        remedy=remedy,
        forms=forms,
        forms_text=words,
        clock_ahead=first.clock_ahead,
        clock_text=explain_clock(first.clock_ahead),
        certificate_expires_at=row.certificate_expires_at,
        note=NO_COUNTS if row.confirms_counts is not None and not row.confirms_counts else None,
    )


def _without_request(rt: Runtime, destination: Destination) -> Checkup:
    """A receiver that does not know empty batches is not asked: what its events met is the result."""
    row = destinations.get(destination.name)
    is_failing = row.failing_since is not None or row.circuit != "closed"
    reason = row.reason or row.last_error
    if is_failing:
        text = in_words(reason)
    elif row.was_contacted:
        text = "not asked: it does not know empty batches; its last event was accepted"
    else:
        text = "not asked: it does not know empty batches; its first event is its test"
    return Checkup(
        destination=destination.name,
        url=destination.address,
        is_good=not is_failing,
        status=None,
        seconds=0.0,
        text=text,
        remedy=failure_cause(reason).remedy if is_failing else None,
        forms="unknown",
        forms_text="does not apply: its signature covers the bytes as they are sent",
        clock_ahead=None,
        clock_text="not asked",
        certificate_expires_at=row.certificate_expires_at,
        note=None,
    )


def refuses_events(row: DestinationRow) -> bool:
    """It accepts an empty batch, and refuses every event."""
    return row.circuit == "open" and (row.reason or "").startswith(REFUSES_ALL)


def explain_refusal(row: DestinationRow) -> str:
    return f"address, token and signature are right, but {in_words(row.reason)}"


def _find_forms(rt: Runtime, destination: Destination, first: Exchange, known: str | None) -> tuple[Forms, str]:
    if not first.is_let_in:
        return "unknown", "not known while the receiver rejects every request"
    if destination.canonical_json != "auto":
        marked = _ask(rt, destination, destination.canonical_json, MARK)
        return judge_fixed_form(destination.canonical_json, marked)
    forms = judge_forms(first, _ask(rt, destination, "ascii", MARK), _ask(rt, destination, "utf8", MARK))
    if forms in ("ascii", "utf8") and forms != known:
        row = destinations.get(destination.name)
        destination_state.write(row, destination_state.verified(row, forms))
    return forms, explain_forms(forms, known)


def _ask(rt: Runtime, destination: Destination, form: Form, extra: dict[str, Any]) -> Exchange:
    """A test has a row in `delivery_attempts` like every request."""
    now, request_id = rt.now(), new_request_id()
    batch_id = batches.new_batch_id(now)
    with writing():
        attempt_id = attempts.start(None, destination.name, request_id, 1, form, now, url=destination.address)
    body = canonical(http.envelope(rt.settings.csi.instance_id, batch_id, []) | extra, form)
    answer = http.send(
        rt.net_to(destination), destination.receiver, body, message_id=batch_id, request_id=request_id, now=now
    )
    ended = rt.now()
    clock_ahead = clock_difference(answer, (now + ended) / 2) if isinstance(answer, HttpResponse) else None
    exchange = Exchange(form, answer, judge(answer, 0, ended), ended - now, clock_ahead)
    outcome = "test_ok" if exchange.is_let_in else "test_failed"
    with writing():
        attempts.finish(
            attempt_id, outcome, ended, status=exchange.status, reason=getattr(exchange.verdict, "reason", "")
        )
    return exchange


# ── in words; pure ──────────────────────────────────────────────────────────────────────────────────────

_WORDS = {
    "bad_credentials": "the bearer token is wrong: CSI_UA_BEARER_TOKEN here, or the secret where that is not set",
    "bad_signature": "the signature is wrong: both sides need the same CSI_UA_SHARED_SECRET",
    "stale_timestamp": f"the timestamp is more than {TOLERANCE_SECONDS} s from its clock; set both clocks by NTP",
}


def explain(exchange: Exchange) -> str:
    """What the answer means, and what to do about it."""
    match exchange.verdict:
        case Delivered() | PerEvent():
            return "accepted: address, token and signature are right"
        case Refused(reason):
            right = "address, token and signature are right"
            return f"the receiver refuses an empty batch ({reason}): {right}"
        case ClockOff(reason):
            return f"refused ({reason}): a signature is valid for {TOLERANCE_SECONDS} s; set both clocks by NTP"
        case Throttled(seconds, reason):
            return f"the receiver asks us to wait for {seconds:,.0f} s ({reason})"
        case EndpointFault(reason):
            if isinstance(exchange.answer, NetError):
                return f"refused by us: {failure_cause(reason).words}"
            word = next((words for name, words in _WORDS.items() if name in reason), None)
            return f"refused ({reason}): {word}" if word else in_words(reason)
        case Transient(reason):
            if isinstance(exchange.answer, NetError):
                words = failure_cause(reason).words
                return words if words.startswith("no answer") else f"no answer: {words}"
            if exchange.answer.status < 300:
                answered = f"it answers http {exchange.answer.status}, but not as docs/contract.md requires ({reason})"
                return f"{answered}: check that this is the right service"
            return f"{in_words(reason)}; events stay pending and are retried"


def explain_clock(ahead: float | None) -> str:
    if ahead is None:
        return "the receiver sends no Date header"
    if abs(ahead) <= 2:
        return "its clock agrees with ours"
    way = "ahead of" if ahead > 0 else "behind"
    danger = f"; beyond {TOLERANCE_SECONDS} s every signature is refused" if abs(ahead) > TOLERANCE_SECONDS / 5 else ""
    return f"its clock is {abs(ahead):.0f} s {way} ours{danger}"


def judge_forms(plain: Exchange, ascii_one: Exchange, utf8_one: Exchange) -> Forms:
    """Which canonical JSON it verifies. Only a refusal of one form beside an acceptance of the other is a proof."""
    pair = (_is_believed(ascii_one), _is_believed(utf8_one))
    if pair == (True, False):
        return "ascii"
    if pair == (False, True):
        return "utf8"
    both_arrived = all(isinstance(one.verdict, Delivered) for one in (ascii_one, utf8_one))
    return "both" if pair == (True, True) and both_arrived else "unknown"


def judge_fixed_form(form: Form, marked: Exchange) -> tuple[Forms, str]:
    believed = _is_believed(marked)
    if believed and isinstance(marked.verdict, Delivered):
        return form, f"{form}, as configured: it verifies text beyond ASCII"
    if believed is False:
        return (
            "unknown",
            f"it does not verify text beyond ASCII in the configured form {form}; try canonical_json: auto",
        )
    return "unknown", f"configured: {form}; cannot tell from an empty batch whether it verifies that"


def explain_forms(forms: Forms, known: str | None) -> str:
    match forms:
        case "both":
            return "verifies both forms of JSON (ascii, utf8)"
        case "ascii" | "utf8":
            return f"verifies {forms} only; remembered"
    learned = f"; it has verified {known} before" if known else ""
    return f"cannot tell from an empty batch{learned}"


def _is_believed(exchange: Exchange) -> bool | None:
    """None: its answer says nothing about the signature."""
    if exchange.is_let_in:
        return True
    return False if exchange.status == 401 else None
