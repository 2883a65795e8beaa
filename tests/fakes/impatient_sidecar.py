"""The real sidecar, except that it calls late after seconds what it else would after minutes."""

from csi import main
from csi.status import verdict, worker

SECONDS = 12.0
"""More than two heartbeats."""


def run() -> None:
    worker.FRESH_SECONDS = verdict.OVERDUE_SECONDS = SECONDS
    main.main()


if __name__ == "__main__":
    run()
