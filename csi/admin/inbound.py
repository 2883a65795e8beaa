"""Operator actions on /hooks: add, rotate and remove senders, print a signed request, replay messages."""

import json
import os
import re
import secrets
import shlex
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.config import key_files
from csi.config.secrets import read_variable
from csi.config.setting_types import TIERS
from csi.errors import CsiError
from csi.ingester import webhook_signature
from csi.net import local_url
from csi.pipeline import inbound_receive
from csi.runtime import Runtime
from csi.store import inbound_endpoints, inbound_messages
from csi.store.db import writing
from csi.store.inbound_endpoints import Endpoint

KINDS = ("events", "items", "composio")
PREVIOUS_SECONDS = 86_400.0
"""How long the secret before a rotation is accepted."""
MAX_REPLAYED = 1000

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class InboundRefused(CsiError):
    """The request cannot be fulfilled; the text says why and what to do."""


class UnknownSender(InboundRefused):
    """There is no sender of this name."""


@dataclass(frozen=True)
class SenderAccess:
    """What a sender needs: shown by `add` and `rotate`, and stored nowhere. `secret` None: a variable holds it."""

    name: str
    kind: str
    url: str
    secret: str | None
    is_served: bool


def add(
    rt: Runtime,
    name: str,
    kind: str = "events",
    *,
    source: str | None = None,
    ref: str | None = None,
    tier: str = "standard",
    secret_env: str | None = None,
) -> SenderAccess:
    """InboundRefused: the name is taken or not usable, or what the kind needs is missing."""
    _require_key(rt)
    if not _NAME.fullmatch(name) or name.startswith("websub-"):
        raise InboundRefused("expected a name of a-z, 0-9, '-', '_' and '.', at most 40 characters, not websub-…")
    if kind not in KINDS or tier not in TIERS:
        raise InboundRefused(f"expected a kind of {', '.join(KINDS)} and a tier of {', '.join(TIERS)}")
    if kind == "items" and source not in rt.settings.sources:
        known = ", ".join(rt.settings.sources) or "none is configured"
        raise InboundRefused(f"raw items need --source, a configured source ({known})")
    if kind == "composio" and not secret_env:
        raise InboundRefused(
            "Composio shows its webhook secret once: put it into the environment of the sidecar, and name the variable "
            "with --secret-env CSI_COMPOSIO_SECRET"
        )
    if secret_env is not None and not _VARIABLE.fullmatch(secret_env):
        raise InboundRefused("--secret-env is the name of a variable, not the secret")
    with writing():
        made = inbound_endpoints.add(
            name, kind, source=source, ref=ref, tier=tier, secret_env=secret_env, now=rt.now()
        )  # fmt: skip
    if made is None:
        raise InboundRefused(f"{name} exists already; `csi inbound rotate {name}` gives it a new secret")
    return access(rt, made)


def rotate(rt: Runtime, name: str, *, grace: float = PREVIOUS_SECONDS, new_address: bool = False) -> SenderAccess:
    """A new secret, and with `new_address` a new address. The secret before is accepted for `grace` seconds."""
    _require_key(rt)
    found = _found(name)
    if found.secret_env and not new_address:
        raise InboundRefused(
            f"the secret of {name} is in {found.secret_env}: change it there, then restart the sidecar"
        )
    with writing():
        made = inbound_endpoints.rotate(name, previous_until=rt.now() + grace, new_address=new_address)
    return access(rt, made or found)


def remove(name: str) -> bool:
    with writing():
        return inbound_endpoints.remove(name)


def access(rt: Runtime, endpoint: Endpoint) -> SenderAccess:
    keys = rt.inbound_keys
    secret = None
    if endpoint.secret_env is None:
        secret = webhook_signature.as_whsec(keys.secret(endpoint.name, endpoint.generation))
    path = f"/hooks/{endpoint.name}/{keys.token(endpoint.name, endpoint.address)}"
    return SenderAccess(endpoint.name, endpoint.kind, base_url(rt) + path, secret, rt.settings.serves_hooks)


def base_url(rt: Runtime) -> str:
    """Where senders reach /hooks, as far as the configuration says it; else where this machine does."""
    inbound, web = rt.settings.inbound, rt.settings.web
    if inbound.public_url:
        return inbound.public_url.partition("/hooks")[0]
    pushed = next((source.websub for source in rt.settings.sources.values() if source.websub), None)
    if pushed is not None:
        return pushed.callback_base
    own = (inbound.host, inbound.port) if inbound.host is not None and inbound.port is not None else None
    return local_url(*(own or (web.host, web.port)))


def signed_request(rt: Runtime, name: str) -> str:
    """A curl command with a sample message, signed now: valid for five minutes."""
    _require_key(rt)
    endpoint, now = _found(name), rt.now()
    if endpoint.secret_env and not read_variable(endpoint.secret_env, os.environ):
        raise InboundRefused(f"{endpoint.secret_env} is not set: set it for this command, too")
    key = inbound_receive.secrets_of(rt, endpoint, now)[0]
    message_id, body = f"msg_{secrets.token_hex(8)}", json.dumps(_sample(endpoint, now)).encode()
    headers = {"Content-Type": "application/json"}
    headers |= webhook_signature.sign_webhook(key, message_id, int(now), body)
    options = " ".join(f"-H {shlex.quote(f'{header}: {value}')}" for header, value in headers.items())
    return f"curl -sS -X POST {options} --data {shlex.quote(body.decode())} {shlex.quote(access(rt, endpoint).url)}"


def _sample(endpoint: Endpoint, now: float) -> dict[str, Any]:
    moment, number = clock.iso(now), secrets.token_hex(4)
    match endpoint.kind:
        case "composio":
            return {
                "id": f"msg_{number}", "timestamp": moment, "type": "composio.trigger.message",
                "metadata": {"trigger_slug": "TEST"}, "data": {"test": True},
            }  # fmt: skip
        case "items":
            item = {"event_type": "test", "occurred_at": moment, "payload": {"id": f"test-{number}"}}
            return {"items": [item], **({"watch": endpoint.ref} if endpoint.ref else {})}
    return {
        "event_id": f"test:{endpoint.name}:{number}",
        "dedupe_key": f"test:{endpoint.name}:{number}",
        "source": endpoint.source or "inbound",
        "event_type": "test",
        "occurred_at": moment,
        "subject": {"title": f"A test message of csi inbound test {endpoint.name}"},
    }


def replay(rt: Runtime, ids: list[int], *, sender: str | None = None, all_failed: bool = False) -> list[int]:
    """Handle messages again; what they stored before is known by its key and stays as it is."""
    if all_failed:
        ids = [one.id for one in inbound_messages.newest(MAX_REPLAYED, sender=sender, state="failed")]
    with writing():
        return inbound_messages.replay(ids[:MAX_REPLAYED], rt.now())


def _found(name: str) -> Endpoint:
    found = inbound_endpoints.find(name)
    if found is None:
        raise UnknownSender(f"there is no sender {name[:40]!r}; `csi inbound list` shows all")
    return found


def _require_key(rt: Runtime) -> None:
    """A command does not create the key: run by root it would own the file, and the sidecar could not read it."""
    if rt.settings.secrets.inbound_key is None and key_files.read_key(rt.inbound_key_file, "inbound") is None:
        raise InboundRefused(
            "there is no inbound key yet: set inbound.enabled: true in the configuration and restart the sidecar, "
            "which creates it; or set CSI_INBOUND_KEY"
        )
