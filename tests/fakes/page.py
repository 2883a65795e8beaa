"""An HTTP server that answers every GET with one status and records the paths."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    url: str = ""
    asked: list[str] = field(default_factory=list)


@contextmanager
def page(status: int = 200) -> Iterator[Page]:
    shown = Page()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shown.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
