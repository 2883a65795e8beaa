"""Huey's consumer without drivers that this installation does not use: `python -m tasks.consumer redis,psycopg …`

Huey imports redis and psycopg wherever they are installed, which costs 15 MB, and `huey_consumer` has imported them
before our first line runs: `huey_config` replaces that process with this module.
"""

import os
import sys
from pathlib import Path

from csi.config.settings import is_server
from csi.import_blocker import without

NAMES = ("huey_consumer", "huey_consumer.py")


def unused_drivers(*urls: str) -> list[str]:
    """Drivers that none of these databases and queues needs."""
    on_redis = [url.startswith(("redis:", "rediss:")) for url in urls]
    on_postgres = [is_server(url) and not is_redis for url, is_redis in zip(urls, on_redis, strict=True)]
    return [name for name, is_needed in (("redis", any(on_redis)), ("psycopg", any(on_postgres))) if not is_needed]


def restart_without(unused: list[str]) -> None:
    """Where `huey_consumer` started this process: replace it, with the same id, options and environment.

    `-P`: a tasks.py in the working directory must not replace ours.
    """
    started_as = Path(getattr(sys.modules["__main__"], "__file__", None) or "").name
    if started_as in NAMES and any(name in sys.modules for name in unused):
        os.execv(sys.executable, [sys.executable, "-P", "-m", "tasks.consumer", ",".join(unused), *sys.argv[1:]])  # noqa: S606 no shell


def main() -> None:
    unused = sys.argv.pop(1).split(",")
    with without(*unused):
        from huey.bin.huey_consumer import consumer_main
    consumer_main()


if __name__ == "__main__":
    main()
