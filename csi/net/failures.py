"""NetError for the errors of httpx: its kind, and a message without anything secret."""

import errno
import os
import socket
import ssl

from csi.errors import NetError
from csi.net.deadline import call
from csi.net.httpx_import import httpx
from csi.net.response import HttpLimits


def explain(error: Exception, where: str, limits: HttpLimits) -> NetError:
    """A NetError for an error of httpx. The text of httpx is dropped: it may quote a URL with a key, or a header."""
    match error:
        case httpx.PoolTimeout():
            kind, words = "busy", "no free connection; too many requests at once"
        case httpx.ConnectTimeout():
            kind, words = "timeout", f"no connection within {min(limits.connect, limits.total):g} s"
        case httpx.TimeoutException():
            kind, words = "timeout", f"no complete response within {limits.total:g} s"
        case httpx.NetworkError():
            kind, words = _name_break(error)
        case httpx.RemoteProtocolError() if call.cut:
            kind, words = "reset", "the connection closed before the response was complete"
        case httpx.RemoteProtocolError():
            kind, words = "protocol", "the response is not valid HTTP"
        case _:
            kind, words = "protocol", f"the exchange failed ({type(error).__name__})"
    unsent = isinstance(error, httpx.PoolTimeout | httpx.ConnectTimeout | httpx.ConnectError)
    return NetError(f"{where}: {words}", kind=kind, sent=not unsent)


def _name_break(error: httpx.NetworkError) -> tuple[str, str]:
    cause: BaseException | None = error  # the operating system's error is at the bottom of httpx's and httpcore's
    while cause is not None and not isinstance(cause, OSError | UnicodeError):
        cause = cause.__cause__ or cause.__context__  # httpcore's pool raises `from None`
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "tls", f"the certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "tls", f"no TLS connection ({cause.reason or 'handshake failed'})"
    if not isinstance(error, httpx.ConnectError):
        return "reset", "the connection broke before the response was complete"
    if isinstance(cause, socket.gaierror | UnicodeError):
        return "connect", "the host name does not resolve"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
        return "connect", f"cannot connect ({os.strerror(cause.errno)})"
    return "connect", "cannot connect (the connection closed)"
