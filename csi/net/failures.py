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
    kind, words = _name_failure(error, limits)
    unsent = isinstance(error, httpx.PoolTimeout | httpx.ConnectTimeout | httpx.ConnectError)
    return NetError(f"{where}: {words}", kind=kind, sent=not unsent)


def _name_failure(error: Exception, limits: HttpLimits) -> tuple[str, str]:
    match error:
        case httpx.PoolTimeout():
            return "busy", "no free connection; too many requests at once"
        case httpx.ConnectTimeout():
            return "timeout", f"no connection within {min(limits.connect, limits.total):g} s"
        case httpx.TimeoutException():
            return "timeout", f"no complete answer within {limits.total:g} s"
        case httpx.NetworkError():
            return _name_break(error)
        case httpx.RemoteProtocolError() if call.cut:
            return "reset", "the connection closed before the answer was complete"
        case httpx.RemoteProtocolError():
            return "protocol", "the answer is not valid HTTP"
        case _:
            return "protocol", f"the exchange failed ({type(error).__name__})"


def _name_break(error: httpx.NetworkError) -> tuple[str, str]:
    cause = _system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "tls", f"the certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "tls", f"no TLS connection ({cause.reason or 'handshake failed'})"
    if not isinstance(error, httpx.ConnectError):
        return "reset", "the connection broke before the answer was complete"
    if isinstance(cause, socket.gaierror | UnicodeError):
        return "connect", "the host name does not resolve"
    return "connect", f"cannot connect ({_words(cause)})"


def _system_error(error: BaseException) -> BaseException | None:
    """The operating system's error at the bottom of httpx's and httpcore's."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError | UnicodeError):
        cause = cause.__cause__ or cause.__context__  # httpcore's pool raises `from None`
    return cause


def _words(cause: BaseException | None) -> str:
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
        return os.strerror(cause.errno)
    return "the connection closed"
