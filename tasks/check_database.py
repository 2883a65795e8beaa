"""Every day: check the SQLite file for damage. No row remembers it: the next start and the next day check again."""

from pathlib import Path

from huey import crontab

from csi.store import damage, db
from csi.store.db import DatabaseError
from huey_config import huey
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="41", hour="3"), priority=0)
def check_database() -> None:
    """Damage ends the worker, as an error of a statement does."""
    where = runtime().settings.csi
    if not db.is_postgres() and (found := damage.find_damage(Path(where.database_url), where.state_dir)):
        raise DatabaseError(f"database disk image is malformed: {found}")
