"""An event as a shell command that signs it with a secret of its environment; the text contains none. Pure."""

import shlex
from typing import Any

from csi import __version__
from csi.ingester.signature import canonical

_SIGN = (
    "import hashlib,hmac,os,sys; "
    'print(hmac.new(os.environ["CSI_UA_SHARED_SECRET"].encode(),sys.stdin.buffer.read(),hashlib.sha256).hexdigest())'
)


def command(event: dict[str, Any], instance_id: str) -> str:
    """Sends the event again, alone, to CSI_UA_ENDPOINT. The secret does not appear in the output of `ps`."""
    envelope = {
        "csi_version": __version__,
        "csi_instance_id": instance_id,
        "batch_id": "batch_by_hand",
        "events": [event],
    }
    body = canonical(envelope, "ascii").decode()
    return "\n".join(
        [
            "# needs CSI_UA_ENDPOINT and CSI_UA_SHARED_SECRET in the environment",
            f"body={shlex.quote(body)}",
            "at=$(date +%s) id=hand_$(date +%s)_$$",
            f'sign=$(printf \'%s.%s.%s\' "$at" "$id" "$body" | python3 -c {shlex.quote(_SIGN)})',
            'printf \'header = "Authorization: Bearer %s"\\n\' "${CSI_UA_BEARER_TOKEN:-$CSI_UA_SHARED_SECRET}" |',
            '  curl -sS -K - "$CSI_UA_ENDPOINT" -H "Content-Type: application/json" -H "X-CSI-Timestamp: $at" \\',
            '  -H "X-CSI-Request-ID: $id" -H "X-CSI-Signature: sha256=$sign" --data-binary "$body"',
        ]
    )
