"""The ingester's mutes."""

from csi.mutes import Mute, MuteTable
from csi.store.db import sql_database

__all__ = ["Mute"]

_table = MuteTable(sql_database)
add, active, end = _table.add, _table.active, _table.end
