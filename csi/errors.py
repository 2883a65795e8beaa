"""The exception tree. Each error knows its exit code, so that no command ends in a traceback."""

SOME_FAILED = 5
UNHEALTHY = 6

EXIT_CODES = {
    0: "fine; ended by TERM, or by Ctrl-C where that is how one leaves",
    1: "failed, not found, or the answer is no",
    2: "wrong usage; also: nobody was there to confirm",
    3: "the configuration cannot be used; every problem is a line",
    4: "a required setting is missing: endpoint or secret",
    SOME_FAILED: "a part of it failed; the output says which part and why",
    UNHEALTHY: "`csi doctor` found a fault, or `csi slo --check` a missed objective",
    7: "the database or the queue cannot be used: no access, not a database, made by a newer version, server away",
    8: "the port is in use",
    9: "another worker holds this state directory",
    130: "ended by INT (Ctrl-C)",
    141: "whoever read the output went away",
}
"""The one table of exit codes; docs/cli.md is generated from it."""


class CsiError(Exception):
    """Something a person can act on. `str(error)` says what, where and what to do."""

    exit_code = 1


class ConfigError(CsiError):
    """The configuration cannot be used; every problem found is one line of the message."""

    exit_code = 3


class MissingSetting(ConfigError):
    """A secret or a delivery setting that must be set before anything starts."""

    exit_code = 4


class StoreError(CsiError):
    """The database cannot be used: newer schema, wrong file, no access."""

    exit_code = 7


class PortInUse(CsiError):
    """Somebody else listens where we should."""

    exit_code = 8


class AlreadyRunning(CsiError):
    """Another worker holds this state directory."""

    exit_code = 9


class SourceError(CsiError):
    """A source could not be read. Nothing was changed; the watch is tried again later."""

    def __init__(self, message: str, *, kind: str = "transient", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class NetError(CsiError):
    """An HTTP exchange that gave no complete answer. `kind` is one word for tables and metrics.

    `sent` is False only where it is certain that no byte of the request left: what is paid for may be asked again then.
    """

    def __init__(self, message: str, *, kind: str, sent: bool = True) -> None:
        super().__init__(message)
        self.kind = kind
        self.sent = sent


class MalformedItem(CsiError):
    """One item that cannot become an event. It goes to the dead letters with its raw payload."""
