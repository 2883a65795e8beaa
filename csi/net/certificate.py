"""When the certificate of a TLS connection expires, also where it is not accepted."""

import socket
import ssl
from contextlib import suppress
from typing import Any

from csi import clock, exclusive_section

EXPIRED = 10
"""OpenSSL's number for a certificate that has expired (X509_V_ERR_CERT_HAS_EXPIRED)."""
OTHER_HOST = (62, 64)
"""The certificate is for another host name, or for another address."""
UNTRUSTED = (2, 18, 19, 20, 21)
"""It is self-signed, or its authority is not known here."""

READ_SECONDS = 3.0


def expires_at(connection: Any) -> float | None:
    """Of a connection whose certificate was accepted; None: it is not TLS, or has no date."""
    # httpcore returns the object inside ssl.SSLSocket, which has no public type.
    if not hasattr(connection, "getpeercert"):
        return None
    ends = (connection.getpeercert() or {}).get("notAfter")
    return float(ssl.cert_time_to_seconds(ends)) if isinstance(ends, str) else None


@exclusive_section.released()
def read_expiry(host: str, port: int) -> float | None:
    """Of a certificate that has expired: ssl keeps nothing of it, so it is read in a second handshake, in which nothing
    is sent. None: it cannot be read, or it is another certificate of the chain that has expired."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        suppress(OSError, ValueError, IndexError),
        socket.create_connection((host, port), READ_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        found = not_after(connection.getpeercert(binary_form=True) or b"")
        return found if found <= clock.now() else None
    return None


def not_after(certificate: bytes) -> float:
    """The end of validity in an X.509 certificate (DER). By hand: ssl decodes only certificates that it accepted."""
    _, body, _ = _element(certificate, 0)
    _, position, _ = _element(certificate, body)
    tag, _, end = _element(certificate, position)
    # The version is optional; then: serial number, algorithm, issuer, validity.
    position = end if tag == 0xA0 else position
    for _ in range(3):
        _, _, position = _element(certificate, position)
    _, validity, _ = _element(certificate, position)
    _, _, begins_end = _element(certificate, validity)
    tag, start, end = _element(certificate, begins_end)
    text = certificate[start:end].decode("ascii")
    if tag == 0x17:  # UTCTime has two digits of the year; 50 is 1950
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    year, month, day, hour, minute, second = text[:4], text[4:6], text[6:8], text[8:10], text[10:12], text[12:14]
    return clock.parse(f"{year}-{month}-{day}T{hour}:{minute}:{second}Z")


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the content of the DER element at this position."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length >= 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    return tag, start, start + length
