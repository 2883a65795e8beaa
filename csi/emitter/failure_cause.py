"""Why a receiver does not accept events, in words: what a stored reason means, and what the operator does about it.

A reason is `http 503: overloaded` (the status, then the receiver's own words), `connect: connection refused` (the kind
of a failed exchange, then our words), or a sentence of `csi.emitter.verdict`. Rows of release 1.0 have the kind alone.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from csi.ingester.signature import TOLERANCE_SECONDS

AUTHENTICATION = "the-receiver-answers-401-or-403"
ADDRESS = "the-receiver-answers-404-a-redirect-or-a-tls-error"
AWAY = "the-receiver-answers-503-or-not-at-all"
CLOCK = "a-clock-is-wrong"
REFUSES = "the-receiver-refuses-every-event"
TEMPLATE = "a-template-fails"
"""Sections of ops/runbook.md."""
REFUSES_ALL = "it refuses every event"
NO_OK = "answer without ok"
NO_SUM = "answer does not add up"

SET_CLOCKS = "set both clocks by NTP: `timedatectl set-ntp true`"
_ADDRESS_SETTING = "CSI_UA_ENDPOINT (of a named destination: its endpoint)"


@dataclass(frozen=True)
class FailureCause:
    """Why, and what to do. `words` and `remedy` hold no address and nothing that the receiver said."""

    words: str
    remedy: str
    runbook: str
    is_proven: bool = False
    """One answer proves it: waiting does not end it."""


_STATUSES = {
    401: FailureCause(
        "authentication failed (401): check the secret, the bearer token and the clock",
        "give both sides the same secret: CSI_UA_SHARED_SECRET here and there, and the same bearer token",
        AUTHENTICATION,
        is_proven=True,
    ),
    403: FailureCause(
        "not allowed (403): check that the receiver allows this instance_id",
        "let the receiver allow this csi.instance_id",
        AUTHENTICATION,
        is_proven=True,
    ),
    404: FailureCause(
        "nothing exists at its address (404): check the path",
        f"correct the path in {_ADDRESS_SETTING}",
        ADDRESS,
        is_proven=True,
    ),
    405: FailureCause(
        "its address accepts no POST (405): check the path",
        f"correct the path in {_ADDRESS_SETTING}",
        ADDRESS,
        is_proven=True,
    ),
    410: FailureCause(
        "the receiver removed this address (410)", f"set {_ADDRESS_SETTING} to the new one", ADDRESS, is_proven=True
    ),
    429: FailureCause(
        "the receiver rate-limits us (429)",
        "let the receiver allow more requests, or lower `delivery.max_concurrent_requests`",
        AWAY,
    ),
    502: FailureCause(
        "a proxy in front of the receiver does not reach it (502)", "start the receiver behind its proxy", AWAY
    ),
    503: FailureCause("the receiver is unavailable (503)", "start or repair the receiver; its log says why", AWAY),
    504: FailureCause(
        "a proxy in front of the receiver gets no answer from it (504)",
        "find out why the receiver is slow; its log says more",
        AWAY,
    ),
}
_REPAIR = "repair the receiver; its log says why it fails"
_CORRECT_ADDRESS = f"correct {_ADDRESS_SETTING}"
_IS_ANOTHER_SERVICE = f"check that {_ADDRESS_SETTING} is the receiver and not another service"
_STATUS_COUNTS = (
    "where every 2xx means accepted, as with n8n or a webhook service, set `answers: status` for a named destination"
)
_SLOW = "find out why the receiver is slow, or raise `delivery.timeout_seconds`"

_KINDS = {
    "connect": FailureCause("no connection", f"start the receiver, or {_CORRECT_ADDRESS}", AWAY),
    "timeout": FailureCause("no answer in time", _SLOW, AWAY),
    "reset": FailureCause("it closed the connection before its answer was complete", _REPAIR, AWAY),
    "protocol": FailureCause("its answer is not valid HTTP", _CORRECT_ADDRESS, ADDRESS),
    "bad_encoding": FailureCause("its answer cannot be decompressed", _REPAIR, AWAY),
    "too_large": FailureCause("its answer is too large", _REPAIR, AWAY),
    "busy": FailureCause("too many requests at once", "lower `delivery.max_concurrent_requests`", AWAY),
    "tls": FailureCause("no TLS connection", f"repair the receiver's TLS, or {_CORRECT_ADDRESS}", ADDRESS, True),
    "insecure": FailureCause(
        "its address is plain http, which is allowed for loopback and private addresses only",
        f"use https in {_ADDRESS_SETTING}",
        ADDRESS,
        is_proven=True,
    ),
    "private": FailureCause(
        "its public name resolves to a private address",
        f"add the host to `net.allowed_private_hosts`, or {_CORRECT_ADDRESS}",
        ADDRESS,
        is_proven=True,
    ),
    "bad_url": FailureCause("its address cannot be used", _CORRECT_ADDRESS, ADDRESS, is_proven=True),
    "template": FailureCause(
        "its template failed", "correct the destination's template, then `csi config check`", TEMPLATE
    ),
    "renderer": FailureCause(
        "its template could not be rendered", "see the worker's log; the template is tried again", TEMPLATE
    ),
    "notify": FailureCause(
        "the message was not accepted", "check the apprise URL in the variable that endpoint_env names", AWAY
    ),
    "body_size": FailureCause(
        "the event is too large for one request",
        "read it with `csi events show`; other events are not affected",
        REFUSES,
    ),
    "redirect": FailureCause("it redirects to another address", _CORRECT_ADDRESS, ADDRESS, is_proven=True),
}
_REMEDIES = {
    "certificate expired": "renew the receiver's certificate",
    "certificate is for another host name": f"use the name of the certificate in {_ADDRESS_SETTING}",
    "certificate is not signed": "use a certificate of a public authority, or set SSL_CERT_FILE to its authority",
    "name cannot be resolved": f"correct the host name in {_ADDRESS_SETTING}, or repair DNS of this machine",
}
"""By the beginning of the words, where the kind alone does not say what to do."""

_HTTP = re.compile(r"http (?P<status>\d{3})(?:: (?P<said>.*))?", re.S)
_CLOCK = re.compile(r"; the receiver's clock is (?P<off>[+-]\d+) s from ours$")


@lru_cache(maxsize=64)
def failure_cause(reason: str | None) -> FailureCause:
    """What this reason means. An unknown one, and none at all, is a failing receiver."""
    reason = reason or ""
    if off := _CLOCK.search(reason):
        ahead = int(off["off"])
        way = "ahead of" if ahead > 0 else "behind"
        clocks = f"the receiver's clock is {abs(ahead)} s {way} ours; {TOLERANCE_SECONDS} s are allowed"
        return FailureCause(f"authentication failed (401): {clocks}", SET_CLOCKS, CLOCK, is_proven=True)
    if reason.startswith(REFUSES_ALL):
        if "template: " in reason:
            return failure_cause(reason.removeprefix(f"{REFUSES_ALL}: "))
        status = re.search(r"http (\d{3})", reason)
        words = f"{REFUSES_ALL} ({status[1]})" if status else REFUSES_ALL
        remedy = "`csi dlq list --group-by error` shows what it objects to; correct the receiver"
        return FailureCause(words, remedy, REFUSES, is_proven=True)
    if found := _HTTP.fullmatch(reason):
        return _status_cause(int(found["status"]))
    if reason == NO_OK:
        remedy = f"{_IS_ANOTHER_SERVICE}; {_STATUS_COUNTS}"
        return FailureCause('its answer is not JSON with "ok": true', remedy, ADDRESS)
    if reason == NO_SUM:
        return FailureCause("the counts in its answer do not add up", "correct the receiver's answer", AWAY)
    kind, _, words = reason.partition(": ")
    known = _KINDS.get(kind)
    if known is None:
        return FailureCause("it failed", _REPAIR, AWAY)
    if kind == "template":
        return FailureCause(f"its template failed: {words}", known.remedy, TEMPLATE, is_proven=True)
    remedy = next((text for start, text in _REMEDIES.items() if words.startswith(start)), known.remedy)
    return FailureCause(words or known.words, remedy, known.runbook, known.is_proven)


def in_words(reason: str | None) -> str:
    """For operators who are signed in: with the receiver's own words. Text that is no reason stays as it is."""
    reason = reason or ""
    said = _HTTP.fullmatch(_CLOCK.sub("", reason.removeprefix(f"{REFUSES_ALL}: ")))
    kind = reason.removeprefix(f"{REFUSES_ALL}: ").partition(": ")[0]
    if said is None and kind not in _KINDS and reason not in (NO_OK, NO_SUM):
        return reason
    words = failure_cause(reason).words
    return f"{words}; it says: {said['said']}" if said is not None and said["said"] else words


def without_code(reason: str) -> str:
    """The reason of a dead letter: our words where the exchange failed, the status and the receiver's words as they
    are where it answered."""
    return failure_cause(reason).words if reason.partition(": ")[0] in _KINDS else reason


def _status_cause(status: int) -> FailureCause:
    if status in _STATUSES:
        return _STATUSES[status]
    if 300 <= status < 400:
        words = f"it redirects to another address ({status}); redirects are never followed"
        return FailureCause(words, f"set {_ADDRESS_SETTING} to the final one", ADDRESS, is_proven=True)
    if status in (400, 413, 422):
        return FailureCause(f"it refuses the request ({status})", "correct the receiver; its log says why", REFUSES)
    if status in (408, 425) or status >= 500:
        return FailureCause(f"the receiver fails ({status})", _REPAIR, AWAY)
    words = f"it refuses every request ({status}): the receiver or its authentication is misconfigured"
    return FailureCause(words, f"correct the receiver, or {_ADDRESS_SETTING}", AUTHENTICATION, is_proven=True)
