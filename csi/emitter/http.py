"""One signed POST to the receiver."""

from dataclasses import dataclass, field
from typing import Any

from csi import __version__
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


def envelope(instance_id: str, batch_id: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of one request (PRD §8.1)."""
    return {"csi_version": __version__, "csi_instance_id": instance_id, "batch_id": batch_id, "events": events}


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
