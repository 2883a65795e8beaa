"""The receiver of every bench: checks signatures, answers, and keeps a ledger. As little work as a receiver can do.

`python -m ops.bench.sink` prints its address; `… 0.2` takes so many seconds for an answer. GET /counts and GET /arrived
tell what came. The product's own receiver stores durably and would measure itself; this one is the same for the line,
the plain loop and the peer.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from csi.ingester.signature import ValidSignature, verify

SECRET = "CSI_BENCH_SECRET"


class Ledger:
    """Event ids with the time of their first arrival."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self.requests = 0
        self.again = 0

    def take(self, batch: dict[str, Any], now: float) -> None:
        self.requests += 1
        for event in batch["events"]:
            if event["event_id"] in self.arrived:
                self.again += 1
                continue
            self.arrived[event["event_id"]] = now

    def counts(self) -> dict[str, int]:
        return {"events": len(self.arrived), "again": self.again, "requests": self.requests}


class Exchange(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as much of it as our clients speak."""

    def __init__(self, ledger: Ledger, secret: str, latency: float = 0.0) -> None:
        self.ledger, self.secret, self.latency, self.data = ledger, secret, latency, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (head_end := self.data.find(b"\r\n\r\n")) >= 0:
            lines = self.data[:head_end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            end = head_end + 4 + int(headers.get("content-length", 0))
            if len(self.data) < end:
                return
            body, self.data = self.data[head_end + 4 : end], self.data[end:]
            self.answer(*self.handle(lines[0], headers, body))

    def handle(self, request: str, headers: dict[str, str], body: bytes) -> tuple[str, dict[str, Any]]:
        if request.startswith("GET /counts"):
            return "200 OK", self.ledger.counts()
        if request.startswith("GET /arrived"):
            return "200 OK", self.ledger.arrived
        now = time.time()
        found = verify(
            [self.secret],
            signature=headers.get("x-csi-signature", ""),
            timestamp=headers.get("x-csi-timestamp", ""),
            request_id=headers.get("x-csi-request-id", ""),
            body=body,
            now=now,
        )
        if not isinstance(found, ValidSignature):
            return "401 Unauthorized", {"ok": False}
        batch = json.loads(body)
        self.ledger.take(batch, now)
        return "200 OK", {"ok": True, "accepted": len(batch["events"]), "rejected": 0}

    def answer(self, status: str, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        if self.latency:
            asyncio.get_running_loop().call_later(self.latency, self.transport.write, head.encode() + body)
        else:
            self.transport.write(head.encode() + body)


async def main() -> None:
    ledger, secret, latency = Ledger(), os.environ[SECRET], float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    server = await asyncio.get_running_loop().create_server(lambda: Exchange(ledger, secret, latency), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
