"""Log lines on stderr, JSON or text, one per record, with every known secret masked."""

from csi.logs.journal import print_error
from csi.logs.logger import Log, log
from csi.logs.redaction import redact, register_secret
from csi.logs.repeated import RepeatedErrors
from csi.logs.sink import install_excepthook, setup, take_over

__all__ = [
    "Log",
    "RepeatedErrors",
    "install_excepthook",
    "log",
    "print_error",
    "redact",
    "register_secret",
    "setup",
    "take_over",
]
