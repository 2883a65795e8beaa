"""Masks secrets: every form of the known ones, and patterns for unknown ones."""

import base64
import json
import re
import threading
from urllib.parse import quote, quote_plus

MASK = "[redacted]"
SHORTEST_SECRET = 6


class Redactor:
    """Masks known secrets in every encoding in which they can appear, and patterns of unknown ones."""

    HINT = re.compile(r"(?i)=|bearer|authorization|api-key|cookie|AIza")
    PATTERNS = (
        (
            re.compile(
                r"(?i)((?:proxy-)?authorization|x-goog-api-key|x-api-key|(?:set-)?cookie)"
                r"(\\?[\"']?(?:\s*[:=]\s*(?:b?\\?[\"'])?|\s*,\s*b?\\?[\"']))"
                r"(?:(?:bearer|basic)\s+)?[^\s\"',;\\]{2,}"
            ),
            rf"\1\2{MASK}",
        ),
        (re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}"), rf"\1{MASK}"),
        (
            re.compile(
                r"(?i)((?:^|[?&;\s\"'(])"
                r"(?:key|api_?key|(?:access_|refresh_)?token|(?:client_)?secret|password)=)[^&\s\"'\\#)]+"
            ),
            rf"\1{MASK}",
        ),
        (re.compile(r"AIza[\w-]{30,}"), MASK),
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forms: tuple[str, ...] = ()

    def add(self, secret: str) -> None:
        with self._lock:
            known = {*self.forms, *_forms(secret), *_forms(secret.strip())}
            self.forms = tuple(sorted(known, key=len, reverse=True))  # a long form before a part of it

    def clean(self, text: str) -> str:
        """Known secrets and secret-looking values masked."""
        text = self.mask(text)
        if self.HINT.search(text):
            for pattern, left in self.PATTERNS:
                text = pattern.sub(left, text)
        return text

    def mask(self, text: str) -> str:
        for form in self.forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    @property
    def longest(self) -> int:
        return len(self.forms[0]) if self.forms else 0


def _forms(secret: str) -> set[str]:
    if len(secret) < SHORTEST_SECRET:
        return set()
    data = secret.encode("utf-8", "surrogatepass")
    quoted = {quote(data, safe=""), quote(data), quote_plus(data)}
    lower = {re.sub("%..", lambda match: match[0].lower(), text) for text in quoted}
    escaped = {secret, *_json_forms(secret), repr(secret)[1:-1], repr(data)[2:-1]}
    twice = {form for text in escaped for form in _json_forms(text)}
    # The base64 text of these bytes at each of the three offsets in a longer text, as in `user:password`
    found = set()
    for offset, skipped in ((0, 0), (1, 2), (2, 3)):
        padded = bytes(offset) + data
        whole = base64.b64encode(padded).decode()[skipped : len(padded) * 8 // 6]
        found |= {whole, whole.translate({ord("+"): "-", ord("/"): "_"})}
    found = {*quoted, *lower, *escaped, *twice, *found, data.hex(), data.hex().upper()}
    return {form for form in found if len(form) >= SHORTEST_SECRET}


def _json_forms(text: str) -> set[str]:
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}


redactor = Redactor()


def register_secret(value: str) -> None:
    """Mask this value from now on, in every form and every sink. Shorter than 6 characters: ignored."""
    redactor.add(value)


def redact(text: str) -> str:
    """Text that is stored or sent (an error in the database, a response) with secrets masked."""
    return redactor.clean(text)
