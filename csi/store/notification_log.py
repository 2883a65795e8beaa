"""The ingester's notifications."""

from csi.notification_sending import KEPT, FailingTarget, Notification, NotificationTable
from csi.store.db import sql_database

__all__ = ["KEPT", "FailingTarget", "Notification"]

table = NotificationTable(sql_database)
record, has, drop, latest, failing = table.record, table.has, table.drop, table.latest, table.failing
