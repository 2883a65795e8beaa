"""Handle a message that a sender pushed to /hooks, and ask a hub to subscribe or renew.

The rows in `inbound_messages` and `subscriptions` remember both; the maintenance loop finds them again after a crash.
"""

from csi.pipeline import inbound_process, subscribe
from csi.pipeline.flush import flush_due_lanes
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task()
def process_message(message_id: int) -> None:
    dispatch(flush_due_lanes(runtime(), inbound_process.process(runtime(), message_id)))


@huey.task()
def request_subscription(subscription_id: int) -> None:
    dispatch(subscribe.subscribe(runtime(), subscription_id))
