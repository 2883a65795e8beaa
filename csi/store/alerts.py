"""The ingester's alerts."""

from csi.alerts import KEPT_SECONDS, OVER_AFTER_RECOVERIES, OVER_SECONDS, AlertTable, StoredAlert
from csi.store.db import sql_database

__all__ = ["KEPT_SECONDS", "OVER_AFTER_RECOVERIES", "OVER_SECONDS", "StoredAlert"]

table = AlertTable(sql_database)
record, fire, resolve = table.record, table.fire, table.resolve
firing, latest = table.firing, table.latest
claim_unnotified, mark_notified, delete_old = table.claim_unnotified, table.mark_notified, table.delete_old
