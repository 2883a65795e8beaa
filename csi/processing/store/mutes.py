"""Processing's mutes."""

from csi.mutes import MuteTable
from csi.processing.store.db import sql_database

_table = MuteTable(sql_database)
add, active, end = _table.add, _table.active, _table.end
