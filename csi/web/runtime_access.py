"""What the pages share: the runtime, opened at first use, and threads in which the database is asked."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, fail_after, to_thread

from csi import clock
from csi.config.settings import Settings
from csi.errors import CsiError, StoreError
from csi.logs import log
from csi.runtime import Runtime
from csi.store import db

T = TypeVar("T")

READ_SECONDS = 5.0
"""How long a page waits for the database before it says that it cannot."""

READERS = 8
POLLERS = 4
QUIET_SECONDS = 10.0


class Sidecar:
    """One per app. Nothing is opened before somebody asks; a failure to open is not remembered."""

    def __init__(self, open_runtime: Callable[[], Runtime]) -> None:
        self._open = open_runtime
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}
        self._runtime: Runtime | None = None
        self._readers, self._pollers = CapacityLimiter(READERS), CapacityLimiter(POLLERS)

    async def settings(self) -> Settings:
        opened = self._runtime
        return opened.settings if opened else await self.ask(lambda rt: rt.settings)

    def now(self) -> float:
        """The runtime's time, once there is one."""
        return self._runtime.now() if self._runtime else clock.now()

    async def ask(self, question: Callable[[Runtime], T]) -> T:
        """Run a short read in a thread of its own. StoreError when the answer takes too long."""
        try:
            with fail_after(READ_SECONDS):
                return await to_thread.run_sync(self._answer, question, abandon_on_cancel=True, limiter=self._readers)
        except TimeoutError as error:
            raise StoreError(f"the database did not answer within {READ_SECONDS:g} s") from error

    async def work(self, task: Callable[[Runtime], T]) -> T:
        """Run something that may take a while; few at once, and never in the way of a read."""
        return await to_thread.run_sync(self._answer, task, abandon_on_cancel=True, limiter=self._pollers)

    async def wake(self) -> None:
        """Open the runtime ahead of the first request. Should that fail, `/readyz` and the log say so."""
        try:
            await to_thread.run_sync(self._hold, abandon_on_cancel=True)
        except CsiError as error:
            self.say("the sidecar is not ready", error)

    def forget(self) -> None:
        """Let go of the runtime: the next request reads configuration and environment anew."""
        with self._lock:
            runtime, self._runtime = self._runtime, None
            self._readers, self._pollers = CapacityLimiter(READERS), CapacityLimiter(POLLERS)
        if runtime is not None:
            runtime.net.close()

    def say(self, sentence: str, error: CsiError | str) -> None:
        """Log it, each reason once in ten seconds: whoever knocks a thousand times must not fill the disk."""
        now = time.monotonic()
        self._said = {told: at for told, at in self._said.items() if now - at < QUIET_SECONDS}
        if self._said.setdefault(f"{sentence}: {error}", now) == now:
            log.warning(sentence, error=str(error))

    def _answer(self, question: Callable[[Runtime], T]) -> T:
        runtime = self._hold()
        with db.reading():
            return question(runtime)

    def _hold(self) -> Runtime:
        with self._lock:
            if self._runtime is None:
                self._runtime = self._open()
            return self._runtime
