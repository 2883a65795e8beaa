"""Read one watch that is due."""

from csi.flow.poll import poll
from huey_config import huey
from tasks.dispatch import dispatch, step
from tasks.worker import runtime


@huey.task()
@step
def poll_watch(watch_id: int) -> None:
    dispatch(poll(runtime(), watch_id))
