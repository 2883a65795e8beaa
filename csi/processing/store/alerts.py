"""Processing's alerts."""

from csi.alerts import AlertTable
from csi.processing.store.db import sql_database

_table = AlertTable(sql_database)
record, firing, latest = _table.record, _table.firing, _table.latest
claim_unnotified, mark_notified = _table.claim_unnotified, _table.mark_notified
