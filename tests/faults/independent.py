"""A verifier written from the text of PRD §8.1 alone, with the standard library only: a judge we did not teach."""

import hashlib
import hmac
import json

HEADERS = ("authorization", "content-type", "x-csi-signature", "x-csi-timestamp", "x-csi-request-id")
ENVELOPE = {"csi_version": str, "csi_instance_id": str, "batch_id": str, "events": list}


def objection(shared_secret: str, headers: dict[str, str], body: bytes) -> str | None:
    """What is wrong with this request; None: nothing. Header names are in lower case."""
    missing = [name for name in HEADERS if name not in headers]
    if missing:
        return f"missing {missing[0]}"
    if headers["authorization"] != f"Bearer {shared_secret}":
        return "wrong bearer"
    if headers["content-type"].split(";")[0].strip() != "application/json":
        return "wrong content type"
    return _envelope_fault(body) or _signature_fault(shared_secret, headers, body)


def _envelope_fault(body: bytes) -> str | None:
    try:
        envelope = json.loads(body)
    except ValueError:
        return "not JSON"
    wrong = [name for name, kind in ENVELOPE.items() if not isinstance(envelope.get(name), kind)]
    if wrong:
        return f"envelope without {wrong[0]}"
    return "more than 100 events" if len(envelope["events"]) > 100 else None


def _signature_fault(shared_secret: str, headers: dict[str, str], body: bytes) -> str | None:
    timestamp, request_id = headers["x-csi-timestamp"], headers["x-csi-request-id"]
    body_json = json.dumps(json.loads(body), separators=(",", ":"), sort_keys=True)
    signing_string = f"{timestamp}.{request_id}.{body_json}"
    digest = hmac.new(shared_secret.encode("utf-8"), signing_string.encode("utf-8"), hashlib.sha256).hexdigest()
    return None if hmac.compare_digest(headers["x-csi-signature"], f"sha256={digest}") else "wrong signature"
