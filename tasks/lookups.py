"""Look at announced streams, and find the icons of watches.

The rows in `awaited_streams` and `watches` remember both; the maintenance loop finds them again after a crash.
"""

from csi.pipeline import live_start, watch_icons
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task()
def check_streams(source: str) -> None:
    dispatch(live_start.check(runtime(), source))


@huey.task()
def find_icons(source: str) -> None:
    watch_icons.find(runtime(), source)
