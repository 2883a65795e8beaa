"""The real sidecar, except that it calls late after seconds what it else would after minutes."""

from csi import main
from csi.web import health

SECONDS = 12.0
"""More than two heartbeats."""


def run() -> None:
    health.FRESH_SECONDS = health.DEAD_SECONDS = health.OVERDUE_SECONDS = SECONDS
    main.main()


if __name__ == "__main__":
    run()
