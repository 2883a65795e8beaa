"""The sidecar notices a changed configuration file, and takes it when it is valid."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from csi.config import loader
from csi.config.settings import Settings
from csi.errors import ConfigError, CsiError
from csi.logs import log, redact
from csi.runtime import load_settings
from csi.web.shared_state import Sidecar

ROUND_SECONDS = 3.0
Stamp = tuple[int, int, int]


class ConfigWatch:
    """Compares the file with what it was. An invalid file is refused once, and the old settings stay."""

    def __init__(
        self, sidecar: Sidecar, path: Path | None = None, load: Callable[[], Settings] = load_settings
    ) -> None:
        self._sidecar, self._load = sidecar, load
        self._path = path
        self._stamp = self._look()

    def run_round(self) -> None:
        stamp = self._look()
        if stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._sidecar.reload(self._load)
        except CsiError as error:
            log.error("sidecar keeps the old configuration: the new one is not valid", error=redact(str(error)))
        else:
            log.info("sidecar uses the changed configuration")

    def _look(self) -> Stamp | None:
        """None while an editor replaces the file."""
        try:
            found = (self._path or loader.find_file(None, os.environ)).stat()
        except (OSError, ConfigError):
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def watch_in_background(watch: ConfigWatch, stopping: threading.Event) -> None:
    def run() -> None:
        while not stopping.wait(ROUND_SECONDS):
            try:
                watch.run_round()
            except Exception as error:  # noqa: BLE001 the edge of this thread: the thread continues
                log.error("the configuration file could not be compared", error=repr(error))

    threading.Thread(target=run, name="config-watch", daemon=True).start()
