"""Read one watch that is due, and those that wait in line for its slot."""

from csi.pipeline.poll import poll
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task()
def poll_watch(watch_id: int) -> None:
    for wakes in poll(runtime(), watch_id):
        dispatch(wakes)
