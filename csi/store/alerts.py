"""The ingester's alerts."""

from csi.alerts import KEPT_SECONDS, OVER_AFTER_RECOVERIES, OVER_SECONDS, AlertTable, StoredAlert
from csi.store.db import sql_database

__all__ = ["KEPT_SECONDS", "OVER_AFTER_RECOVERIES", "OVER_SECONDS", "StoredAlert"]

_table = AlertTable(sql_database)
record, fire, resolve = _table.record, _table.fire, _table.resolve
firing, latest = _table.firing, _table.latest
claim_unnotified, mark_notified, delete_old = _table.claim_unnotified, _table.mark_notified, _table.delete_old
