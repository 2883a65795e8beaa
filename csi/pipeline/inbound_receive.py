"""A request to /hooks, in the sidecar: whose address it is, who signed it, and its row. Nothing is parsed here but the
shape of what your own scripts send: they get a clear error at once."""

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass

from csi import logs
from csi.config.secrets import read_variable
from csi.errors import MalformedItem
from csi.ingester import webhook_signature
from csi.ingester.webhook_signature import Refusal, SignedMessage
from csi.logs import log
from csi.pipeline import inbound_content
from csi.pipeline.subscribe import hook_name
from csi.runtime import Runtime
from csi.scheduling import push_rules
from csi.store import counters, inbound_endpoints, inbound_messages, subscriptions
from csi.store.db import writing
from csi.store.inbound_endpoints import Endpoint
from csi.store.inbound_messages import NewMessage
from csi.store.subscriptions import Subscription


@dataclass(frozen=True)
class Sender:
    """Who owns an address of /hooks."""

    name: str
    endpoint: Endpoint | None = None
    subscription: Subscription | None = None


@dataclass(frozen=True)
class Answer:
    """What the sender is answered."""

    status: int
    text: str
    retry_after: int | None = None


class NoSecret(MalformedItem):
    """The variable that holds the secret of a sender is not set."""


def find_sender(rt: Runtime, name: str, token: str) -> Sender | None:
    """None: no such address. The comparison takes as long for a name that does not exist."""
    endpoint = inbound_endpoints.find(name)
    subscription = None
    kind, _, number = name.partition("-")
    if endpoint is None and kind == "websub" and number.isascii() and number.isdigit() and len(number) <= 12:
        found = subscriptions.find(int(number))
        if found is not None and found.kind == "websub" and hook_name(found.id) == name:
            subscription = found
    expected = rt.inbound_keys.token(name, endpoint.address if endpoint else 1)
    is_right = hmac.compare_digest(expected.encode(), token.encode("utf-8", "replace"))
    if not is_right or (endpoint is None and subscription is None):
        return None
    return Sender(name, endpoint, subscription)


def secrets_of(rt: Runtime, endpoint: Endpoint, now: float) -> list[bytes]:
    """The current secret, and the one before it for as long as it is accepted. Composio's is another service's."""
    if endpoint.secret_env:
        text = read_variable(endpoint.secret_env, os.environ)
        if not text:
            raise NoSecret(f"{endpoint.secret_env} is not set in the environment of the sidecar")
        logs.register_secret(text)
        return [text.encode() if endpoint.kind == "composio" else webhook_signature.webhook_key(text)]
    generations = [endpoint.generation]
    if endpoint.previous_until is not None and endpoint.previous_until > now:
        generations.append(endpoint.generation - 1)
    return [rt.inbound_keys.secret(endpoint.name, number) for number in generations]


# ── messages ────────────────────────────────────────────────────────────────────────────────────────────


def receive(rt: Runtime, sender: Sender, headers: Mapping[str, str], body: bytes) -> Answer:
    """Verify, then store, then answer: the row is what the worker handles."""
    if sender.subscription is not None:
        # A push that the hub did not sign is dropped, and answered with 202 like every other (WebSub 1.0, 8)
        now, name = rt.now(), hook_name(sender.subscription.id)
        if sender.subscription.state == "ended":
            return Answer(410, "this subscription has ended")
        signature = headers.get("x-hub-signature-256") or headers.get("x-hub-signature", "")
        refusal = webhook_signature.check_hub([rt.inbound_keys.hub_secret(name, 1)], signature, body)
        if refusal is not None:
            with writing():
                subscriptions.note_error(sender.subscription.id, f"a push was dropped: {_WHY[refusal]}", now)
                counters.add("inbound", label="refused")
            log.warning("push was dropped", sender=name, reason=refusal)
            return Answer(202, "accepted")
        new = NewMessage(name, "websub", sender.subscription.id, hashlib.sha256(body).hexdigest(), body)
        return _store(new, now)
    if sender.endpoint is None:
        raise AssertionError("a sender has an endpoint or a subscription")
    return _receive_webhook(rt, sender.endpoint, headers, body)


def _receive_webhook(rt: Runtime, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Answer:
    now, message = rt.now(), SignedMessage.of(headers)
    try:
        secrets = secrets_of(rt, endpoint, now)
    except NoSecret as error:
        log.error("webhook cannot be verified", sender=endpoint.name, error=str(error))
        return Answer(503, "this sender's secret is not configured", 300)
    refusal = webhook_signature.check_webhook(secrets, message, body, now)
    if refusal is not None:
        with writing():
            inbound_endpoints.note_refused(endpoint.id, refusal, now)
            counters.add("inbound", label="refused")
        log.warning("webhook was refused", sender=endpoint.name, reason=refusal)
        return Answer(401, _WHY[refusal])
    try:
        inbound_content.check(endpoint.kind, body)
    except MalformedItem as error:
        return Answer(422, str(error))
    return _store(NewMessage(endpoint.name, endpoint.kind, endpoint.id, message.id, body), now)


def _store(new: NewMessage, now: float) -> Answer:
    with writing():
        result = inbound_messages.add(new, now)
        counters.add("inbound", label=result)
        if result in ("stored", "repeated") and new.kind != "websub":
            inbound_endpoints.note_accepted(new.sender_id, now)
    match result:
        case "stored":
            return Answer(202, "accepted")
        case "repeated":
            return Answer(200, "received before")
        case "conflict":
            return Answer(409, "another message was received under this id")
    return Answer(503, "too many messages are waiting; try again later", 60)


_WHY: dict[Refusal, str] = {
    "no_signature": "the signature is missing",
    "malformed_id": "webhook-id is missing or not usable",
    "malformed_timestamp": "webhook-timestamp is missing or not a number of seconds",
    "stale_timestamp": "webhook-timestamp is more than 5 minutes off; check both clocks",
    "bad_signature": "the signature does not match; check the secret",
}


# ── the hub's verification ──────────────────────────────────────────────────────────────────────────────


def verify_intent(rt: Runtime, row: Subscription, query: Mapping[str, str]) -> str | None:
    """The challenge to echo. None: we did not ask for this, and the hub gets 404."""
    now, asked = rt.now(), row.lease_seconds or 432_000.0
    fault = _intent_fault(row, query, asked)
    if fault is not None:
        with writing():  # nothing of the subscription changes but its last error
            subscriptions.note_error(row.id, f"the hub was refused: {fault}", now)
        log.warning("verification was refused", sender=hook_name(row.id), reason=fault)
        return None
    if query.get("hub.mode") == "denied":
        reason = query.get("hub.reason", "")
        said = "".join(char for char in reason[:100] if char.isprintable())
        failures = row.failures + 1
        with writing():
            subscriptions.note_error(row.id, f"the hub denied the subscription{f': {said}' if said else ''}", now)
            if row.state not in ("ending", "ended"):
                due_at = push_rules.retry(now, failures, rt.rng)
                subscriptions.change(row.id, state="failing", failures=failures, due_at=due_at)
        log.warning("hub denied the subscription", sender=hook_name(row.id))
        return ""
    if query.get("hub.mode") == "subscribe":
        lease = push_rules.granted_lease(query.get("hub.lease_seconds"), asked) or asked
        with writing():
            renew_at = push_rules.renewal(now, lease, rt.rng)
            subscriptions.verify(row.id, lease=lease, renew_at=renew_at, now=now)
        log.info("subscription verified", sender=hook_name(row.id), lease=round(lease))
    return query.get("hub.challenge")


def _intent_fault(row: Subscription, query: Mapping[str, str], asked: float) -> str | None:
    mode, is_ended = query.get("hub.mode", ""), row.state in ("ending", "ended")
    if query.get("hub.topic") != row.topic:
        return "it asked to verify a topic that was not subscribed"
    if mode == "denied":
        return None
    if not push_rules.is_challenge(query.get("hub.challenge")):
        return "its challenge is missing or not usable"
    if mode == "unsubscribe":  # only we may end a subscription that is wanted
        return None if is_ended else "it asked to unsubscribe"
    if mode != "subscribe" or row.state not in ("requested", "verified", "failing"):
        return "it asked to verify what was not requested"
    if push_rules.granted_lease(query.get("hub.lease_seconds"), asked) is None:
        return "the lease that it grants is not usable"
    return None
