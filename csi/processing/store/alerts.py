"""Processing's alerts."""

from csi.alerts import AlertTable
from csi.processing.store.db import sql_database

table = AlertTable(sql_database)
record, firing, latest = table.record, table.firing, table.latest
claim_unnotified, mark_notified = table.claim_unnotified, table.mark_notified
