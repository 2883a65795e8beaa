"""The real worker, except that it dies of SIGKILL at a named point of the walk: `python -m … POINT [NTH]`.

Only this test entry point can set a failpoint: the product has no hooks for it.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

POINTS = {
    # name: (module, attribute, die before the call or after it)
    "poll:read": ("csi.flow.poll", "_record_success", "before"),
    "poll:stored": ("csi.flow.poll", "_record_success", "after"),
    "ingest:claimed": ("csi.flow.ingest", "_normalize", "before"),
    "ingest:stored": ("csi.flow.ingest", "_store", "after"),
    "flush:opened": ("csi.flow.flush", "_open_all", "after"),
    "flush:committed": ("tasks.flush", "flush", "after"),
    "deliver:claimed": ("csi.flow.deliver", "_send_in_form", "before"),
    "deliver:sent": ("csi.flow.deliver", "_send_in_form", "after"),
    "deliver:settling": ("csi.flow.deliver", "_mark_delivered", "after"),
    "deliver:settled": ("tasks.deliver", "deliver", "after"),
}


def doomed(function: Callable[..., Any], moment: str, nth: int) -> Callable[..., Any]:
    calls = iter(range(1, 1_000_000))

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        last = next(calls) == nth
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapper


def main() -> None:
    module_name, attribute, moment = POINTS[sys.argv[1]]
    nth = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    import importlib

    import huey_config  # noqa: F401 registers the tasks, so that tasks.* can be patched

    module = importlib.import_module(module_name)
    setattr(module, attribute, doomed(getattr(module, attribute), moment, nth))
    sys.argv = ["huey_consumer", "huey_config.huey", *["-w", "4", "-k", "thread", "-s", "1", "-g", "TERM", "-t", "25"]]
    from huey.bin.huey_consumer import consumer_main

    consumer_main()


if __name__ == "__main__":
    main()
