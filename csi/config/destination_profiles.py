"""What a destination may speak beside the PRD's contract: the words of its profile, presets, and which go together."""

import base64
import binascii
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

if TYPE_CHECKING:
    from csi.config.delivery_settings import DestinationSettings

Answers = Literal["contract", "status"]
BodyForm = Literal["batch", "event", "cloudevents", "cloudevents_batch", "mcp_event"]
SignatureScheme = Literal["csi", "standard_webhooks", "github", "none"]
SecretForm = Literal["raw", "whsec"]
Preset = Literal["n8n", "zapier", "slack", "discord", "hookdeck", "cloudevents"]

SINGLE: tuple[BodyForm, ...] = ("event", "cloudevents", "mcp_event")
"""Forms of a body with one event per request."""

GROUP_SECONDS = 300.0
"""How long a destination of type notify collects events into one message (PRD §3.3)."""

MCP_EVENT_BYTES = 262_144
"""Largest body of one event of MCP Events."""

WHSEC_BYTES = (24, 64)
"""Length of a key of Standard Webhooks."""

SECRET_HEADER = re.compile(r"auth|token|secret|key|cookie|password|signature", re.I)
"""A header of such a name has a secret value."""

_OURS = re.compile(
    r"host|content-length|transfer-encoding|connection|accept-encoding|x-csi-.*|webhook-.*|x-hub-signature.*", re.I
)


def _not_ours(name: str) -> str:
    if _OURS.fullmatch(name):
        raise ValueError("CSI sets this header itself; choose another name")
    return name


HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"), AfterValidator(_not_ours)]
HeaderText = Annotated[str, Field(max_length=1000, pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")]

_LINES = """\
{%- set text %}{% for event in events %}{{ event | headline }}
{{ event.subject.get("url") or "" }}
{% endfor %}{% endset -%}
"""
SLACK = (
    _LINES
    + """\
{%- set safe = text | trim | replace("&", "&amp;") | replace("<", "&lt;") | replace(">", "&gt;") -%}
{"text": {{ safe | tojson }}}
"""
)
DISCORD = (
    _LINES
    + """\
{"content": {{ (text | trim)[:2000] | tojson }}, "allowed_mentions": {"parse": []}}
"""
)

_UNSIGNED: dict[str, Any] = {"answers": "status", "body": "event", "signature": "none"}
PRESETS: dict[str, dict[str, Any]] = {
    "n8n": _UNSIGNED,
    "zapier": _UNSIGNED,
    "slack": _UNSIGNED | {"template": SLACK},
    "discord": _UNSIGNED | {"template": DISCORD},
    "hookdeck": {"answers": "status", "body": "event", "signature": "standard_webhooks", "secret_form": "whsec"},
    "cloudevents": _UNSIGNED | {"body": "cloudevents"},
}
"""Values of keys that a destination with this preset leaves out."""


def profile_fault(given: "DestinationSettings") -> str | None:
    """Why these keys of one destination do not go together, and what to do; None: they do."""
    if given.endpoint and given.endpoint_env:
        return "endpoint and endpoint_env are both set; keep one"
    if given.type == "notify":
        if given.endpoint:
            return (
                "the address of messages holds tokens; put the apprise URL into a variable and name it in endpoint_env"
            )
        if not given.endpoint_env:
            return "endpoint_env, the variable that holds the apprise URL, is required"
        unused = ("secret_env", "bearer_env", "headers", "canonical_json", "standard_webhooks", "priority_behavior")
        found = [key for key in unused if getattr(given, key)]
        fixed = {"signature": "none", "answers": "status", "body": "batch", "method": "POST"}
        found += [key for key, value in fixed.items() if getattr(given, key) != value]
        return f"{found[0]} does not apply to messages (type: notify); remove it" if found else None
    if not (given.endpoint or given.endpoint_env):
        return "endpoint, or endpoint_env where the URL is a secret, is required"
    if given.signature != "none" and not given.secret_env:
        return f"secret_env is required: signature {given.signature} needs a secret; without one set signature: none"
    if given.signature == "none" and given.secret_env:
        return "secret_env is set, but signature: none uses no secret; remove one of them"
    if given.title:
        return "title belongs to messages (type: notify); put it into the template"
    if given.group_seconds is not None and given.body in SINGLE:
        return f"group_seconds collects events, but body: {given.body} sends one per request; set body: batch"
    if given.group_seconds is not None and given.priority_behavior is not None:
        return "group_seconds and priority_behavior both say when events are sent; keep one"
    if given.template and given.body in ("cloudevents", "cloudevents_batch", "mcp_event"):
        return f"a template makes the body, and body: {given.body} does, too; set body: event or body: batch"
    return None


def signing_key(secret: str, form: SecretForm) -> bytes:
    """The bytes that sign. ValueError says what is wrong with the form of the secret, without the secret."""
    if form == "raw":
        return secret.encode()
    least, most = WHSEC_BYTES
    how = f"make one with: echo whsec_$(openssl rand -base64 {WHSEC_BYTES[0] + 8})"
    if not secret.startswith("whsec_"):
        raise ValueError(f"does not begin with whsec_, as secret_form: whsec says; {how}, or set secret_form: raw")
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"is not base64 after whsec_; {how}") from error
    if not least <= len(key) <= most:
        raise ValueError(f"has a key of {len(key)} bytes; Standard Webhooks has {least} to {most}; {how}")
    return key
