"""Subscribe watches at their hubs, and renew: the request. The hub's verification arrives at the sidecar.

The row in `subscriptions` remembers the work: its `due_at` is found by the maintenance loop, its lease expires with a
process that died.
"""

import hashlib
import json
from urllib.parse import urlencode

from csi.adapters import response_headers
from csi.adapters.base import PushTopic
from csi.config.source_settings import PushSettings
from csi.errors import NetError
from csi.logs import log
from csi.net import HttpLimits
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.scheduling import push_rules
from csi.store import subscriptions, watches
from csi.store.db import writing
from csi.store.models import Watch
from csi.store.subscriptions import Subscription

LIMITS = HttpLimits(total=25.0, max_body=65_536)
SYNC_SECONDS = 30.0
SPREAD_SECONDS = 5.0
"""Between the first requests of watches that are subscribed together."""


def due_requests(rt: Runtime) -> list[Wake]:
    """Wake-ups for the subscriptions whose request is due."""
    now = rt.now()
    if not 0 <= now - rt.process.subscriptions_synced_at < SYNC_SECONDS:
        rt.process.subscriptions_synced_at = now
        sync(rt)
    return [Wake("subscribe", number) for number in subscriptions.due(now)]


def sync(rt: Runtime) -> None:
    """Bring the subscriptions in line with the watches."""
    wanted: dict[int, tuple[Watch, PushTopic]] = {}
    for source in rt.enabled_sources() if rt.settings.serves_hooks else ():
        # A paused watch keeps its subscription.
        for watch in watches.of_source(source, paused=True) if rt.settings.sources[source].websub else ():
            topic = rt.adapter(source).push_topic(watch.ref, json.loads(watch.adapter_state or "{}"))
            if topic is not None:
                wanted[watch.id] = (watch, topic)
    rows = {row.watch_id: row for row in subscriptions.every() if row.kind == "websub"}
    if not wanted and not rows:
        return
    now = rt.now()
    with writing():
        for place, (watch, topic) in enumerate(wanted.values()):
            _adjust(rt, watch, topic, rows.get(watch.id), now + place * SPREAD_SECONDS, now)
        for watch_id, row in rows.items():
            if watch_id not in wanted and row.state not in ("ending", "ended"):
                subscriptions.change(row.id, state="ending", due_at=now, failures=0)


def _adjust(rt: Runtime, watch: Watch, topic: PushTopic, row: Subscription | None, first: float, now: float) -> None:
    if row is None:
        subscriptions.add(watch.id, "websub", now, hub_url=topic.hub_url, topic=topic.topic, due_at=first)
        return
    is_other = (row.hub_url, row.topic) != (topic.hub_url, topic.topic) or row.state in ("ending", "ended")
    # Another callback: the key of /hooks or `callback_url` changed.
    is_moved = row.callback_digest not in (None, _digest(callback_url(rt, row.id, watch.source)))
    if is_other or is_moved:
        state = {"state": "pending", "due_at": now, "failures": 0, "callback_digest": None}
        subscriptions.change(row.id, hub_url=topic.hub_url, topic=topic.topic, **state)


def hook_name(subscription_id: int) -> str:
    return f"websub-{subscription_id}"


def callback_url(rt: Runtime, subscription_id: int, source: str) -> str:
    settings, name = _settings(rt, source), hook_name(subscription_id)
    base = settings.callback_base if settings else ""
    return f"{base}/hooks/{name}/{rt.inbound_keys.token(name, 1)}"


def subscribe(rt: Runtime, subscription_id: int) -> list[Wake]:
    """Ask the hub to subscribe, to renew or to unsubscribe, if that is due."""
    with writing():
        row = subscriptions.claim(subscription_id, rt.now())
    watch = watches.find(row.watch_id) if row is not None else None
    if row is None or watch is None:
        return []
    if row.state == "requested" and row.due_at is not None and row.requested_at is not None:
        _fail(rt, row, watch, "the hub accepted the subscription and did not verify it", None)
    else:
        _request(rt, row, watch)
    return []


def _request(rt: Runtime, row: Subscription, watch: Watch) -> None:
    now, mode = rt.now(), "unsubscribe" if row.state == "ending" else "subscribe"
    settings = _settings(rt, watch.source)
    callback = callback_url(rt, row.id, watch.source)
    form = {"hub.mode": mode, "hub.topic": row.topic or "", "hub.callback": callback, "hub.verify": "async"}
    if settings is None or mode == "unsubscribe":
        # Without the settings the callback is not known; the lease runs out.
        subscriptions.settle(row, was=("ending",), state="ended", due_at=None)
        if settings is None:
            return
    else:
        form |= {
            "hub.secret": rt.inbound_keys.hub_secret(hook_name(row.id), 1),
            "hub.lease_seconds": str(int(settings.lease_seconds)),
        }
        # Before the request: a hub may verify before it answers.
        subscriptions.change(
            row.id, state="requested", requested_at=now, due_at=now + push_rules.VERIFY_SECONDS,
            callback_digest=_digest(callback),
        )  # fmt: skip
    net = rt.net if settings.hub_url or watch.source != "feed" else rt.web
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    try:
        answer = net.post(row.hub_url or "", body=urlencode(form).encode(), headers=headers, limits=LIMITS)
    except NetError as error:
        _fail(rt, row, watch, f"the hub could not be reached: {error.cause or error.kind}", None)
        return
    if 200 <= answer.status < 300:
        subscriptions.release(row)
        log.info("hub was asked", mode=mode, source=watch.source, watch=watch.ref, status=answer.status)
        return
    _fail(rt, row, watch, f"the hub answered {answer.status}", response_headers.retry_after(answer, now))


def _fail(rt: Runtime, row: Subscription, watch: Watch, error: str, retry_after: float | None) -> None:
    """A lease that was granted before stays valid."""
    now, failures = rt.now(), row.failures + 1
    subscriptions.settle(
        row,
        was=("pending", "requested", "failing", "verified"),
        state="failing",
        failures=failures,
        failing_since=row.failing_since or now,
        last_error=error[:300],
        due_at=push_rules.retry(now, failures, rt.rng, retry_after),
    )
    log.warning("subscription failed", source=watch.source, watch=watch.ref, error=error, failures=failures)


def _settings(rt: Runtime, source: str) -> PushSettings | None:
    block = rt.settings.sources.get(source)
    return block.websub if block else None


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]
