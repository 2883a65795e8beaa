"""The Huey instance, on the storage that `csi.queue` names. `huey_consumer huey_config.huey` runs the worker."""

import os
import sys

os.environ["TZ"] = "UTC"  # a consumer in another zone shifts the schedule by hours

from csi.errors import CsiError
from csi.runtime import load_settings
from tasks.queue import create_huey

try:
    huey = create_huey(load_settings())
except CsiError as error:
    sys.stderr.write(f"csi: {error}\n")
    raise SystemExit(error.exit_code) from None

from tasks import deliver, flush, ingest, jobs, poll, prune, rescue, tick  # noqa: F401 the tasks register themselves
