"""The real sidecar, except that it takes the worker's place at alerts after seconds instead of a minute."""

from csi import main
from csi.status import worker, worker_problems
from csi.worker import sidecar_alerting


def run() -> None:
    sidecar_alerting.ROUND_SECONDS, sidecar_alerting.QUIET_SECONDS = 1.0, 20.0
    worker.FRESH_SECONDS, worker_problems.SILENT_SECONDS = 12.0, 15.0
    main.main()


if __name__ == "__main__":
    run()
