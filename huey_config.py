"""The Huey instance, on the storage that `csi.queue` names. `huey_consumer huey_config.huey` runs the worker."""

import os

os.environ["TZ"] = "UTC"  # in another time zone Huey would shift the schedule by hours

from csi.runtime import load_settings
from tasks.consumer import restart_without, unused_drivers
from tasks.huey_worker import exit_on_error
from tasks.queue import create_huey
from tasks.worker import IngesterWorker

with exit_on_error():
    os.umask(0o077)  # what this process writes is for its own user
    settings = load_settings()
    restart_without(unused_drivers(settings.csi.database_url, settings.csi.queue_url))
    huey = create_huey(settings)
    huey.worker = IngesterWorker()

from tasks import check_database, deliver, flush, inbound, ingest, jobs, poll, prune, rescue, tick  # noqa: F401 they register
