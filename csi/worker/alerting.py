"""The lookout: tells people once when a trouble has lasted a while, once when it is over, and pings a heartbeat URL."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi import clock, messages
from csi.errors import ConfigError, NetError
from csi.logs import log
from csi.net import HttpLimits
from csi.runtime import Runtime
from csi.status import alert_facts
from csi.status.alert_rules import Trouble
from csi.store import alerts
from csi.store.alerts import Noted
from csi.store.db import writing

HOLD_SECONDS = 120.0
"""Until a message that could not be sent is tried again."""

HISTORY = 20
"""So many of the last troubles are shown."""

PING_LIMITS = HttpLimits(total=10.0, connect=5.0, max_body=64 * 1024, max_redirects=0)


@dataclass(frozen=True)
class Lookout:
    """What is wrong now, what was noted, and whether anybody would be told."""

    services: int
    heartbeat: bool
    current: tuple[Trouble, ...]
    noted: tuple[Noted, ...]


def standing(rt: Runtime) -> Lookout:
    """Looks only: nothing is written down, and nobody is told."""
    has_heartbeat = rt.settings.secrets.heartbeat_url is not None
    return Lookout(len(urls(rt)), has_heartbeat, tuple(alert_facts.current(rt)), tuple(alerts.latest(HISTORY)))


def look(rt: Runtime, *, ours: bool = True) -> list[Noted]:
    """One round: what began and ended is written down, and told. Returns what lasts.

    `ours`: the worker itself looks, whose own silence it cannot judge.
    """
    found = [trouble for trouble in alert_facts.current(rt) if not (ours and trouble.name == "worker_silent")]
    with writing():
        _write_down(rt, found)
    _tell_all(rt)
    return alerts.lasting()


def ping(rt: Runtime) -> bool:
    """A sign of life for a service that raises the alarm when there is none. True: it was heard, or nobody listens."""
    url = rt.settings.secrets.heartbeat_url
    if url is None:
        return True
    try:
        answer = rt.net.get(url.get_secret_value(), limits=PING_LIMITS)
    except NetError as error:
        return _note_ping(rt, error.kind)
    return _note_ping(rt, None if answer.status < 300 else f"http {answer.status}")


def say(rt: Runtime, title: str, body: str) -> bool:
    """True when every service took it. The reason stays with the library: its words may hold a token."""
    return messages.send(urls(rt), f"CSI {rt.settings.csi.instance_id}: {title}", body)


def urls(rt: Runtime) -> list[str]:
    secret = rt.settings.secrets.notify_urls
    return messages.split_urls(secret.get_secret_value()) if secret else []


def require_post(rt: Runtime) -> None:
    """ConfigError unless what is configured can be used. At start, where somebody reads it."""
    if rt.settings.notify.enabled and (found := urls(rt)):
        messages.check(found)


def _write_down(rt: Runtime, found: Sequence[Trouble]) -> None:
    now, there = rt.now(), {(trouble.name, trouble.subject) for trouble in found}
    for trouble in found:
        if alerts.note(trouble.name, trouble.subject, trouble.text, now):
            log.warning("trouble begins", trouble=trouble.name, subject=trouble.subject, text=trouble.text)
    for noted in alerts.lasting():
        if (noted.name, noted.subject) not in there and alerts.end(noted, now):
            log.info("trouble is over", trouble=noted.name, subject=noted.subject, seconds=round(now - noted.since))
    alerts.forget_old(now)


def _tell_all(rt: Runtime) -> None:
    if not (rt.settings.notify.enabled and urls(rt)):
        return
    now = rt.now()
    with writing():
        untold = alerts.claim_untold(now, now - rt.settings.notify.after_seconds, HOLD_SECONDS)
    for trouble in untold:
        _tell(rt, trouble)


def _tell(rt: Runtime, trouble: Noted) -> None:
    title, body = message(trouble)
    try:
        sent = say(rt, title, body)
    except ConfigError as error:
        log.warning("notifications are not possible", error=str(error))
        return
    if sent:
        with writing():
            alerts.mark_told(trouble, rt.now())
        log.info("trouble is told", trouble=trouble.name, over=trouble.ended_at is not None)
    else:
        log.warning("notification could not be sent; it is tried again", trouble=trouble.name)


def message(trouble: Noted) -> tuple[str, str]:
    """A title and a sentence; pure."""
    word = trouble.name.replace("_", " ")
    if trouble.ended_at is None:
        return word, f"{trouble.text}. Since {clock.iso(trouble.since)}. What to do: ops/runbook.md"
    minutes = max(trouble.ended_at - trouble.since, 0.0) / 60
    return f"{word}: over", f"It lasted {minutes:.0f} minutes, from {clock.iso(trouble.since)}. It was: {trouble.text}"


def _note_ping(rt: Runtime, fault: str | None) -> bool:
    """One line where it begins to fail, not one a minute."""
    was = rt.memo.get("ping_fault")
    rt.memo["ping_fault"] = fault
    if fault is not None and was is None:
        log.warning("heartbeat URL could not be reached", error=fault)
    return fault is None
