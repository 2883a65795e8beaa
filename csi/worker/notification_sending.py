"""The ingester's sender of messages to the notification targets."""

from csi.notification_sending import MessageSender
from csi.runtime import Runtime
from csi.store import counters, notification_log
from csi.store.db import sql_database


def sender(rt: Runtime) -> MessageSender:
    return MessageSender(
        sql_database,
        notification_log.table,
        rt.now,
        f"CSI {rt.settings.csi.instance_id}: ",
        count=lambda result: counters.add("notifications", label=result),
    )
