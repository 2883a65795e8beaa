"""Messages at set times: a weekly test, and a daily summary of what no alert reports."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from csi.notification_sending import HOLD_SECONDS, RETRY_SECONDS, Message
from csi.notifications import Target
from csi.runtime import Runtime
from csi.status.facts import gather
from csi.status.verdict import REPLAY_DEAD_LETTERS, judge
from csi.store import scheduled_messages
from csi.store.db import writing
from csi.worker.notification_sending import sender

HOUR_OF_DAY = 9
MONDAY = 0
WATCH_PROBLEMS = ("watch_gone", "watch_denied", "watch_quiet", "feed_stale")


def send_due(rt: Runtime, targets: Sequence[Target]) -> None:
    """Send those whose time has come. One that no target accepts is tried again for a day."""
    settings, now = rt.settings.notify, rt.now()
    if settings.weekly_test:
        _send(rt, targets, "weekly_test", last_time(now, settings.timezone, MONDAY), weekly_test)
    if settings.daily_summary:
        _send(rt, targets, "daily_summary", last_time(now, settings.timezone), daily_summary)


def last_time(now: float, zone: str, weekday: int | None = None) -> float:
    """The last 9:00 up to now in this time zone, of this day of the week; pure."""
    local = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(zone))
    moment = local.replace(hour=HOUR_OF_DAY, minute=0, second=0, microsecond=0, fold=0)
    if moment > local:
        moment -= timedelta(days=1)
    if weekday is not None:
        moment -= timedelta(days=(moment.weekday() - weekday) % 7)
    return moment.timestamp()


def _send(
    rt: Runtime, targets: Sequence[Target], name: str, moment: float, write: Callable[[Runtime, float], Message | None]
) -> None:
    with writing():
        if not scheduled_messages.claim(name, moment, rt.now(), HOLD_SECONDS):
            return
    message = write(rt, moment)
    is_over = message is None or rt.now() - moment > RETRY_SECONDS
    if (message is not None and sender(rt).send(message, targets)) or is_over:
        with writing():
            scheduled_messages.done(name, moment)


def weekly_test(rt: Runtime, moment: float) -> Message:
    found = judge(gather(rt))
    problems = [one.what for one in found.problems]
    state = f"The status is {found.status}" + (f": {'; '.join(problems)}." if problems else ", without problems.")
    lines = [
        f"This is the weekly test: notifications arrive. {state}",
        "What to do: nothing. To switch it off, set `notify.weekly_test: false`.",
    ]
    return Message(f"weekly_test:{moment:.0f}", "weekly_test", "info", "weekly test", "\n".join(lines))


def daily_summary(rt: Runtime, moment: float) -> Message | None:
    """None: nothing to report."""
    facts = gather(rt)
    lines = []
    if facts.dead_letters:
        lines.append(f"{facts.dead_letters:,} dead letters are open. What to do: {REPLAY_DEAD_LETTERS}")
    for one in judge(facts).problems:
        is_unreported = "alert" not in one.fails and one.id != "no_notification_target"
        if one.id in WATCH_PROBLEMS or is_unreported:  # watches that are gone or quiet, and what no alert reports
            lines.append(f"{one.what_and_why}; {one.effect}. What to do: {one.remedy}")
    if not lines:
        return None
    link = [f"Dashboard: {rt.settings.web.public_url}/"] if rt.settings.web.public_url else []
    return Message(f"daily_summary:{moment:.0f}", "daily_summary", "info", "daily summary", "\n".join([*lines, *link]))
