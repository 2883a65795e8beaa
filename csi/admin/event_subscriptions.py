"""Subscriptions of agents (MCP Events, a draft): destinations whose address and key an agent chose, until they expire.

The row of `managed_destinations` is the subscription; callback and key are in the private file of secrets. An expired
row is not used by any process, and the maintenance loop removes it after `GRACE_SECONDS`, also after `kill -9`.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from secrets import token_hex, token_urlsafe
from typing import Any, Literal

from pydantic import SecretStr

from csi.admin.destination_settings import kept_secrets
from csi.config import destination_secrets
from csi.config.delivery_settings import DestinationSettings
from csi.config.destination_profiles import signing_key
from csi.config.destination_secrets import PREVIOUS, variable_of
from csi.config.setting_types import check_url
from csi.emitter import http
from csi.emitter.destination import build
from csi.errors import CsiError, NetError
from csi.ingester.signature import new_request_id
from csi.logs import log, register_secret
from csi.net import HttpResponse
from csi.runtime import Runtime
from csi.store import destinations, managed_destinations
from csi.store.db import writing

MOST = 20
"""Subscriptions of one token."""
DEFAULT_SECONDS, SHORTEST, LONGEST = 3600.0, 60.0, 7 * 86_400.0
"""The time to live that is granted where the agent asks for none, for less, and for more."""
GRACE_SECONDS = 30.0
"""A step that began before a subscription expired may still queue an event for it."""
OVERLAP_SECONDS = 600.0
"""So long requests are signed with the previous key, too."""
VERIFY_SECONDS = 10.0
HEADER = "X-MCP-Subscription-Id"
CHALLENGE = "challenge_failed"

Fault = Literal["params", "limit", "callback", "unknown"]


class SubscriptionRefused(CsiError):
    """Nothing was changed; the text says why. `data` is for programs."""

    def __init__(self, fault: Fault, message: str, **data: Any) -> None:
        super().__init__(message)
        self.fault = fault
        self.data = data


@dataclass(frozen=True)
class WantedSubscription:
    """What an agent asked for. With its owner these, without the key, are the identity of a subscription."""

    owner: str
    name: str
    arguments: dict[str, list[str]]
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    seconds: float | None = DEFAULT_SECONDS
    """The time to live that it suggests; None: no end."""

    @property
    def key(self) -> str:
        """The same for the same subscription, before and after a restart."""
        identity = json.dumps([self.owner, self.url, self.name, self.arguments], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    @property
    def destination(self) -> str:
        return f"mcp-{self.key}"


@dataclass(frozen=True)
class GrantedSubscription:
    """`before` is its destination's row as it was, where the subscription was refreshed."""

    id: str
    expires_at: float
    before: destinations.DestinationRow | None = None


def subscribe(rt: Runtime, wanted: WantedSubscription, may_contact: Callable[[], bool]) -> GrantedSubscription:
    """Make a subscription, or refresh it. A new one is verified: its callback has to echo a challenge, so that no agent
    can make CSI send events to an address that did not ask for them. `may_contact` limits how often that is done.

    The row is written last: a process that ends before leaves a secret behind that nothing uses.
    """
    settings, values = _settings(wanted)
    name, now = wanted.destination, rt.now()
    found = managed_destinations.find(name)
    is_live = found is not None and (found.expires_at or 0.0) > now
    changes_key = found is not None and kept_secrets(rt, name).get(variable_of(name, "SECRET")) != wanted.secret
    if not is_live:
        _refuse_too_many(wanted, now)
    if (not is_live or changes_key) and not may_contact():
        raise SubscriptionRefused("limit", "too many subscriptions in a minute; try again later", limit="requests")
    register_secret(wanted.secret)
    if not is_live:
        _verify(rt, wanted, settings, values)
    lifetime = LONGEST if wanted.seconds is None else min(max(wanted.seconds, SHORTEST), LONGEST)
    before = destinations.get(name) if is_live else None
    with destination_secrets.one_at_a_time(rt.settings.csi.state_dir):
        expires_at = _store(rt, wanted, settings, values, lifetime)
    log.info("agent subscribed to events", destination=name, owner=wanted.owner, refreshed=is_live)
    return GrantedSubscription(f"sub_{wanted.key}", expires_at, before)


def unsubscribe(rt: Runtime, wanted: WantedSubscription) -> str:
    """The subscription expires now. Returns its id."""
    name, now = wanted.destination, rt.now()
    with writing():
        found = managed_destinations.find(name)
        if found is None or found.owner != wanted.owner or (found.expires_at or 0.0) <= now:
            raise SubscriptionRefused(
                "unknown", "there is no such subscription: name, arguments and delivery.url must be those it was made "
                "with, and it must not have expired", kind="subscription",
            )  # fmt: skip
        managed_destinations.set_expiry(name, wanted.owner, now)
    log.info("agent unsubscribed", destination=name, owner=wanted.owner)
    return f"sub_{wanted.key}"


def remove_expired(rt: Runtime) -> int:
    """For the maintenance loop. Subscriptions with a request under way are left for a later pass; with
    features.mcp_events switched off, all of them expire."""
    now = rt.now()
    if not rt.settings.features.mcp_events and managed_destinations.expire_subscriptions(now):
        log.warning("subscriptions of agents ended: features.mcp_events is off")
    return sum(_remove(rt, name, now) for name in managed_destinations.expired(now - GRACE_SECONDS))


def _remove(rt: Runtime, name: str, now: float) -> bool:
    state_dir = rt.settings.csi.state_dir
    with destination_secrets.one_at_a_time(state_dir):
        with writing():
            # Read again: the agent may have refreshed it meanwhile.
            if name not in managed_destinations.expired(now - GRACE_SECONDS) or managed_destinations.in_flight(name):
                return False
            lost = managed_destinations.remove(name, now)
        destination_secrets.change(state_dir, name, dict.fromkeys(kept_secrets(rt, name)))
    log.info("subscription of an agent removed", destination=name, events=lost)
    return True


def _settings(wanted: WantedSubscription) -> tuple[DestinationSettings, dict[str, str]]:
    """The destination, and its secrets by variable. SubscriptionRefused where callback or key cannot be used."""
    try:
        check_url(wanted.url)
    except ValueError as error:
        raise SubscriptionRefused("params", f"delivery.url: {error}") from error
    try:
        signing_key(wanted.secret, "whsec")
    except ValueError:
        words = "delivery.secret: expected whsec_ and the base64 of 24 to 64 random bytes (Standard Webhooks)"
        raise SubscriptionRefused("params", words) from None
    name = wanted.destination
    values = {variable_of(name, "ENDPOINT"): wanted.url, variable_of(name, "SECRET"): wanted.secret}
    given = {
        "endpoint_env": variable_of(name, "ENDPOINT"),
        "secret_env": variable_of(name, "SECRET"),
        "secret_form": "whsec",
        "signature": "standard_webhooks",
        "answers": "status",
        "body": "mcp_event",
        "headers": {HEADER: f"sub_{wanted.key}"},
        **wanted.arguments,
    }
    return DestinationSettings.model_validate(given), values


def _refuse_too_many(wanted: WantedSubscription, now: float) -> None:
    if managed_destinations.subscriptions(wanted.owner, now) >= MOST:
        words = f"this token has {MOST} subscriptions already; end one with events/unsubscribe, or let one expire"
        raise SubscriptionRefused("limit", words, limit="subscriptions", max=MOST)


def _store(
    rt: Runtime, wanted: WantedSubscription, settings: DestinationSettings, values: dict[str, str], lifetime: float
) -> float:
    """Called with the lock of the secrets. A new key is used at once, and the old one beside it for a while."""
    name, state_dir, now = wanted.destination, rt.settings.csi.state_dir, rt.now()
    variable, kept = variable_of(name, "SECRET"), kept_secrets(rt, name)
    old = kept.get(variable)
    if is_new_key := old is not None and old != wanted.secret:
        values = values | {f"{variable}{PREVIOUS}": old}
    destination_secrets.change(state_dir, name, values)
    with writing():
        found = managed_destinations.find(name)
        if found is None or (found.expires_at or 0.0) <= now:
            _refuse_too_many(wanted, now)
        if found is None or is_new_key:
            text = settings.model_dump_json(include=settings.model_fields_set)
            until = now + OVERLAP_SECONDS if is_new_key else None
            managed_destinations.write(name, text, now, previous_until=until)
        managed_destinations.set_expiry(name, wanted.owner, now + lifetime)
    return now + lifetime


def _verify(rt: Runtime, wanted: WantedSubscription, settings: DestinationSettings, values: dict[str, str]) -> None:
    """Send the challenge by the way that events take: private addresses are not reached, redirects not followed."""
    secrets = {name: SecretStr(text) for name, text in values.items()}
    made = replace(build(wanted.destination, settings, rt.settings, secrets), is_guarded=True)
    receiver = replace(made.receiver, timeout=min(made.receiver.timeout, VERIFY_SECONDS))
    challenge, message_id = token_urlsafe(24), f"msg_verification_{token_hex(12)}"
    body = json.dumps({"type": "verification", "challenge": challenge}).encode()
    answer = http.send(
        rt.net_to(made), receiver, body, message_id=message_id, request_id=new_request_id(), now=rt.now()
    )
    if isinstance(answer, NetError) and answer.kind == "private":
        words = "delivery.url: the host is in a private network, or has no public address"
        raise SubscriptionRefused("params", f"{words}; the operator can allow it by net.allowed_private_hosts")
    reason = failure_category(answer)
    if reason is None and isinstance(answer, HttpResponse):
        echoed = str((answer.json_object() or {}).get("challenge", ""))
        reason = None if hmac.compare_digest(echoed.encode("utf-8", "replace"), challenge.encode()) else CHALLENGE
    if reason is not None:
        words = {CHALLENGE: 'it must answer with 2xx and {"challenge": …} of the request'}.get(reason, reason)
        raise SubscriptionRefused("callback", f"the callback was not verified: {words}", reason=reason)


def failure_category(answer: HttpResponse | NetError) -> str | None:
    """One of the draft's words for a failed exchange, and nothing that the callback said. None: 2xx."""
    if isinstance(answer, NetError):
        return {"timeout": "timeout", "tls": "tls_error"}.get(answer.kind, "connection_refused")
    if 200 <= answer.status < 300:
        return None
    return "http_5xx" if answer.status >= 500 else "http_4xx" if answer.status >= 400 else CHALLENGE


def stored_category(reason: str | None) -> str | None:
    """The same for the reason that a destination's row has of its last failure."""
    kind, _, _ = (reason or "").partition(":")
    if kind.startswith("http "):
        return "http_5xx" if kind[5:6] == "5" else "http_4xx"
    return {"": None, "timeout": "timeout", "tls": "tls_error"}.get(kind, "connection_refused")
