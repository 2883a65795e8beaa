"""One request to a destination: signed HTTP, or a message to people."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from csi import exclusive_section, notifications
from csi.body_template import RendererFailed, TemplateFailed
from csi.config.destination_profiles import MCP_EVENT_BYTES
from csi.emitter.profile import CONTRACT, Profile, compose, envelope, proof_headers
from csi.emitter.verdict import MessageSent
from csi.errors import ConfigError, NetError
from csi.ingester.signature import Form
from csi.net import HttpLimits, HttpResponse, Net

ANSWER_BYTES = 1_000_000

__all__ = ["Receiver", "envelope", "send", "send_events"]


@dataclass(frozen=True)
class PreviousKey:
    """The secret before a rotation, during the overlap."""

    key: bytes = field(repr=False)
    bearer: str = field(repr=False)
    until: float
    note_needed: Callable[[float], None] = field(repr=False)
    """Called when the receiver refused the new secret and accepted this one."""


@dataclass(frozen=True)
class Receiver:
    """Connection settings of a destination: URL, key of the signature, bearer token, timeout, and what it speaks."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    bearer: str = field(repr=False)
    timeout: float
    standard_webhooks: bool = False
    profile: Profile = CONTRACT
    previous: PreviousKey | None = None


def send_events(
    net: Net,
    receiver: Receiver,
    events: list[dict[str, Any]],
    *,
    instance_id: str,
    batch_id: str,
    request_id: str,
    form: Form,
    now: float,
) -> HttpResponse | NetError | MessageSent:
    """Make the body of these events as the destination wants it, and send it. A template that fails is returned like a
    failed exchange: it gets a verdict, too."""
    try:
        message = compose(receiver.profile, events, instance_id=instance_id, batch_id=batch_id, form=form)
    except TemplateFailed as error:
        return NetError(f"template: {error}", kind="template", sent=False, cause=str(error))
    except RendererFailed as error:
        return NetError(f"template: {error}", kind="renderer", sent=False, cause=str(error))
    if receiver.profile.kind == "notify":
        # apprise says no more than whether the service accepted the message: no status, and no Retry-After.
        try:
            with exclusive_section.released():
                is_sent = notifications.send([receiver.url], message.title, message.body.decode(), may_mention=True)
        except ConfigError as error:
            return NetError(str(error), kind="notify", sent=False, cause=str(error))
        return MessageSent() if is_sent else NetError("not sent", kind="notify", cause=notifications.NOT_ACCEPTED)
    if receiver.profile.body == "mcp_event" and len(message.body) > MCP_EVENT_BYTES:
        cause = f"this event has {len(message.body):,} bytes, and MCP Events allows {MCP_EVENT_BYTES:,} in one request"
        return NetError(cause, kind="body_size", sent=False, cause=cause)
    return send(net, receiver, message.body, message_id=message.message_id, request_id=request_id, now=now)


def send(
    net: Net, receiver: Receiver, body: bytes, *, message_id: str, request_id: str, now: float
) -> HttpResponse | NetError:
    """Send one request. A network failure is returned, not raised, because it gets a verdict like a response.

    During the overlap of a rotation Standard Webhooks carries both signatures; with a scheme that carries one, a 401 or
    403 is answered by the same request with the previous secret."""
    send_once = partial(_send_once, net, body=body, message_id=message_id, request_id=request_id, now=now)
    answer, previous = send_once(receiver), receiver.previous
    if previous is None or now >= previous.until or not _is_refused(answer):
        return answer
    again = send_once(replace(receiver, key=previous.key, bearer=previous.bearer, previous=None))
    if isinstance(again, HttpResponse) and not _is_refused(again):
        previous.note_needed(now)
        return again
    return answer


def _is_refused(answer: HttpResponse | NetError) -> bool:
    """The secret is not the receiver's; many answer 403 to a signature that they cannot verify."""
    return isinstance(answer, HttpResponse) and answer.status in (401, 403)


def _send_once(
    net: Net, receiver: Receiver, *, body: bytes, message_id: str, request_id: str, now: float
) -> HttpResponse | NetError:
    profile, also, previous = receiver.profile, receiver.standard_webhooks, receiver.previous
    old_key = previous.key if previous is not None and now < previous.until else None
    headers = {
        **({"Authorization": f"Bearer {receiver.bearer}"} if receiver.bearer else {}),
        "Content-Type": profile.content_type,
        **proof_headers(
            profile,
            receiver.key,
            body,
            message_id=message_id,
            request_id=request_id,
            now=now,
            also_standard=also,
            old_key=old_key,
        ),
    }
    own = {name.lower() for name in profile.headers}
    headers = {name: value for name, value in headers.items() if name.lower() not in own} | dict(profile.headers)
    limits = HttpLimits(total=receiver.timeout, connect=min(receiver.timeout, 10.0), max_body=ANSWER_BYTES)
    try:
        return net.post(receiver.url, body=body, headers=headers, limits=limits, method=profile.method)
    except NetError as error:
        return error
