"""The exception tree. Each error has an exit code, so that no command ends with a traceback."""

SOME_FAILED = 5
UNHEALTHY = 6
STALLED = 10

EXIT_CODES = {
    0: "success; also ended by TERM, or by Ctrl-C for commands that run until then",
    1: "failed, not found, or the result is negative",
    2: "wrong usage; also: confirmation needed and stdin is not a terminal",
    3: "the configuration cannot be used; the output has a line for every problem",
    4: "a required setting is missing: endpoint or secret",
    SOME_FAILED: "a part failed; the output says which part and why",
    UNHEALTHY: "`csi doctor` found a fault, or `csi slo --check` a missed objective",
    7: "the database or the queue cannot be used: no access, not a database, newer schema, server not reachable",
    8: "the port is in use",
    9: "another worker holds this state directory",
    STALLED: "the worker's threads hung, and it ended itself to be started again",
    11: "this machine gives the process no more threads",
    130: "ended by INT (Ctrl-C)",
    141: "the reader of the output closed the pipe",
}
"""The one table of exit codes; docs/cli.md is generated from it."""


class CsiError(Exception):
    """An error that the operator can act on. `str(error)` says what is wrong, where, and what to do."""

    exit_code = 1


class ConfigError(CsiError):
    """The configuration cannot be used. The message has one line for every problem."""

    exit_code = 3


class MissingSetting(ConfigError):
    """A secret or a delivery setting that must be set before worker and sidecar start."""

    exit_code = 4


class StoreError(CsiError):
    """The database cannot be used: newer schema, wrong file, no access."""

    exit_code = 7


class PortInUse(CsiError):
    """Another process listens on the configured port."""

    exit_code = 8


class AlreadyRunning(CsiError):
    """Another worker holds this state directory."""

    exit_code = 9


class NoThreads(CsiError):
    """The operating system refused to start a thread."""

    exit_code = 11

    def __init__(self) -> None:
        super().__init__(
            "no thread can be started: the limit of processes and threads is reached; raise it "
            "(TasksMax of systemd, --pids-limit of a container, ulimit -u) and start again"
        )


def is_without_threads(error: BaseException) -> bool:
    """Whether Python raised this error because the operating system refused to start a thread."""
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"


class SourceError(CsiError):
    """A source could not be read. Nothing was changed; the watch is read again later. Kinds: csi.adapters.base."""

    def __init__(self, message: str, *, kind: str = "transient", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class NetError(CsiError):
    """An HTTP exchange without a complete response. `kind` is one word for tables and metrics.

    `sent` is False only if certainly no byte of the request was sent: a paid request can then be repeated. `cause` says
    why in words, without the address. `certificate_expires_at` is known where an expired certificate is the cause.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        sent: bool = True,
        cause: str | None = None,
        certificate_expires_at: float | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.sent = sent
        self.retry_after = retry_after
        self.cause = cause
        self.certificate_expires_at = certificate_expires_at


class MalformedItem(CsiError):
    """An item that cannot become an event. It becomes a dead letter with its raw payload."""
