"""What the requests share: the runtime, opened at first use, and threads that read the database."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from anyio import CapacityLimiter, fail_after, to_thread

from csi import clock, logs
from csi.config import loader
from csi.config.settings import Settings
from csi.errors import CsiError, StoreError
from csi.logs import RepeatedErrors, log
from csi.runtime import Runtime, secret_values
from csi.store import db
from csi.token_guess_limit import GuessBrake
from csi.web.responses import HttpProblem
from csi.worker import reload

T = TypeVar("T")

READ_SECONDS = 5.0
"""How long a request waits for the database before it fails."""
READERS = 8
RUNNERS = 4


class Sidecar:
    """One per app. The runtime is opened by the first request; after a failure the next request tries again."""

    def __init__(self, open_runtime: Callable[[], Runtime]) -> None:
        self._open_runtime = open_runtime
        self._lock = threading.Lock()
        self._errors = RepeatedErrors()
        self._runtime: Runtime | None = None
        self._readers, self._runners = CapacityLimiter(READERS), CapacityLimiter(RUNNERS)
        self.brake = GuessBrake()
        """One for all that tokens open: an address that waits may not go on guessing at another path."""

    async def settings(self) -> Settings:
        opened = self._runtime
        return opened.settings if opened else await self.read(lambda rt: rt.settings)

    def now(self) -> float:
        """The runtime's clock; before it is opened, the system's."""
        return self._runtime.now() if self._runtime else clock.now()

    async def read(self, query: Callable[[Runtime], T]) -> T:
        """Runs a short read in a thread. StoreError when it takes too long."""
        try:
            with fail_after(READ_SECONDS):
                return await to_thread.run_sync(self._call, query, abandon_on_cancel=True, limiter=self._readers)
        except TimeoutError as error:
            raise StoreError(f"the database did not answer within {READ_SECONDS:g} s") from error

    async def run(self, task: Callable[[Runtime], T]) -> T:
        """Runs a change, or a read that may last, in a thread. These threads are few and separate from the readers'."""
        return await to_thread.run_sync(self._call, task, abandon_on_cancel=True, limiter=self._runners)

    async def open(self) -> None:
        """Opens the runtime before the first request. A failure is logged, and `/readyz` reports it."""
        try:
            await to_thread.run_sync(self.runtime, abandon_on_cancel=True)
        except CsiError as error:
            self.warn("the sidecar is not ready", error)

    def reload(self, load: Callable[[], Settings]) -> None:
        """Take changed settings. CsiError: they are not valid, and the old ones stay."""
        old, wanted = self.runtime(), load()
        loader.require_delivery(wanted)
        fresh = reload.renewed(old, wanted)
        with db.connection():
            fresh.use_held_sources()
            fresh.use_managed_destinations()
        with self._lock:
            self._runtime = fresh
        if old.net.guard is not None:
            old.net.guard.allow(fresh.settings.net.allowed_private_hosts)
        settings = fresh.settings
        logs.setup(level=settings.csi.log_level, format=settings.csi.log_format, secrets=secret_values(settings))

    def close(self) -> None:
        """The next request reads configuration and environment again."""
        with self._lock:
            runtime, self._runtime = self._runtime, None
            self._readers, self._runners = CapacityLimiter(READERS), CapacityLimiter(RUNNERS)
        if runtime is not None:
            runtime.net.close()

    def warn(self, message: str, error: CsiError | str) -> None:
        """Logs each error once a minute, so that a client that repeats a request does not fill the disk."""
        self._errors.take_ended()
        if (counted := self._errors.count(f"{message}: {error}")) is not None:
            log.warning(message, error=str(error), **counted)

    def _call(self, task: Callable[[Runtime], T]) -> T:
        runtime = self.runtime()
        try:
            with db.reading():
                with suppress(CsiError, db.DatabaseError):  # the task meets the same fault, and reports it
                    runtime.use_managed_destinations()
                return task(runtime)
        except OverflowError as error:  # SQLite has no integer of 64 bits and more
            raise HttpProblem(404, "there is no row with this number") from error

    def runtime(self) -> Runtime:
        """Opened at the first call; blocks meanwhile."""
        with self._lock:
            if self._runtime is None:
                self._runtime = self._open_runtime()
            return self._runtime
