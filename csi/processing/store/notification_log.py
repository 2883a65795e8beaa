"""Processing's notifications: one row for a message and a target."""

from csi.notification_sending import NotificationTable
from csi.processing.store.db import sql_database

table = NotificationTable(sql_database)
