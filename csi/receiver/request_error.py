"""Why a request gets no for an answer: a status, one word, and perhaps when to come back."""

from csi.errors import CsiError


class RefusalError(CsiError):
    """Ends the handling of a request. `reason` is one word, safe to send back and to log."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
