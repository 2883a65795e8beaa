"""One signed POST to the receiver."""

from dataclasses import dataclass, field
from typing import Any

from csi.errors import NetError
from csi.ingester import signature
from csi.net import HttpLimits, HttpResponse, Net

ANSWER_BYTES = 1_000_000


@dataclass(frozen=True)
class Receiver:
    """Connection settings of a destination: URL, secrets of the signature and the bearer token, timeout."""

    url: str
    secret: str = field(repr=False)
    bearer: str = field(repr=False)
    timeout: float
    standard_webhooks: bool = False


def encode(body: dict[str, Any], form: signature.Form) -> bytes:
    """The bytes that are signed and sent."""
    return signature.canonical(body, form)


def send(
    net: Net, receiver: Receiver, body: bytes, *, batch_id: str, request_id: str, now: float
) -> HttpResponse | NetError:
    """Send one request. A network failure is returned, not raised, because it gets a verdict like a response."""
    headers = {
        "Authorization": f"Bearer {receiver.bearer}",
        "Content-Type": "application/json",
        **signature.headers(receiver.secret, body, now=now, request_id=request_id),
    }
    if receiver.standard_webhooks:
        headers |= signature.webhook_headers(receiver.secret, body, message_id=batch_id, now=now)
    limits = HttpLimits(total=receiver.timeout, connect=min(receiver.timeout, 10.0), max_body=ANSWER_BYTES)
    try:
        return net.post(receiver.url, body=body, headers=headers, limits=limits)
    except NetError as error:
        return error
