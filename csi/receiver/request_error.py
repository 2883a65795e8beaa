"""The exception that rejects a request with a status and a reason."""

from csi.errors import CsiError


class RequestError(CsiError):
    """Ends the handling of a request. `reason` is one word of ours, safe to send back and to log."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
