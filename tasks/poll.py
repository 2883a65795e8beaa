"""Read one watch that is due, and those that stood in line behind it."""

from csi.pipeline.poll import poll_in_turn
from huey_config import huey
from tasks.dispatch import dispatch, step
from tasks.worker import runtime


@huey.task()
@step
def poll_watch(watch_id: int) -> None:
    for wakes in poll_in_turn(runtime(), watch_id):
        dispatch(wakes)
