"""Hold polling and retention while the wall clock and the steady clock disagree (decision 0041)."""

import json
import threading
from dataclasses import asdict

from csi import clock
from csi.errors import CsiError
from csi.logs import log
from csi.runtime import Runtime
from csi.scheduling.clock_trust import LONGEST_HOLD_SECONDS, TOLERANCE_SECONDS, ClockReading, ClockTrust, check
from csi.store import heartbeats
from csi.store.heartbeats import GAP_SECONDS, WORKER, LastHeartbeat

_checking = threading.Lock()


class UntrustedClockError(CsiError):
    """What depends on the age of rows is refused while the clock is not trusted."""


def begin(rt: Runtime) -> None:
    """At the worker's start. Within one boot of the machine the offset of the worker before is still valid, so that a
    jump while no worker ran is noticed, and a hold survives a restart."""
    reading = ClockReading(rt.now(), rt.steady())
    heartbeat, boot_id = heartbeats.latest(WORKER), clock.boot_id()
    stored = json.loads(heartbeat.clock_json) if heartbeat and heartbeat.clock_json else None
    # Without a heartbeat of this boot the steady clock began anew.
    if stored is not None and boot_id is not None and stored.pop("boot_id") == boot_id:
        rt.clock_trust = ClockTrust(**stored)
    else:
        rt.clock_trust = ClockTrust(reading.offset)


def is_held(rt: Runtime) -> bool:
    """Read both clocks. Cheap enough for every poll: a poll that was queued before the jump runs right after it, before
    the maintenance loop looks. False in a process that never called `begin`."""
    if rt.clock_trust is None:
        return False
    with _checking:
        before = rt.clock_trust
        after = rt.clock_trust = check(before, ClockReading(rt.now(), rt.steady()))
    if before.is_held != after.is_held:
        if after.is_held:
            log.warning("clock jumped; polling and retention are held", seconds=round(after.jump))
        elif abs(after.offset - before.offset) > TOLERANCE_SECONDS:
            log.warning(
                "clock jump is accepted; polling and retention resume", seconds=round(after.offset - before.offset)
            )
        else:
            log.info("clock is right again; polling and retention resume", seconds=round(before.jump))
    return after.is_held


def measure(rt: Runtime) -> str | None:
    """Read both clocks; the result is for the worker's heartbeat. None in a process that never called `begin`."""
    is_held(rt)
    trust = rt.clock_trust
    return None if trust is None else json.dumps({"boot_id": clock.boot_id(), **asdict(trust)})


def hold_text(heartbeat: LastHeartbeat | None, now: float) -> str | None:
    """Why the worker of this heartbeat does not poll. None: its clocks agree, or the heartbeat is of another time: the
    worker ended in a hold, or the clock was set right since."""
    if heartbeat is None or abs(now - heartbeat.beat_at) > GAP_SECONDS:
        return None
    if (stored := _held(heartbeat)) is None:
        return None
    return (
        f"the system clock jumped by {_words(stored['jump'])}; polling and retention are held until it is set right, "
        f"for {LONGEST_HOLD_SECONDS / 60:.0f} minutes at most; check it with timedatectl"
    )


def held_since(heartbeat: LastHeartbeat | None) -> float | None:
    """When the hold began, by the wall clock as it is now. None: there is none."""
    stored = _held(heartbeat)
    return None if stored is None else float(stored["held_since"] + stored["offset"] + stored["jump"])


def require_no_hold(rt: Runtime) -> None:
    """For commands that delete by age, in any process."""
    if text := hold_text(heartbeats.latest(WORKER), rt.now()):
        raise UntrustedClockError(f"nothing is deleted: {text}")


def _held(heartbeat: LastHeartbeat | None) -> dict[str, float] | None:
    stored = json.loads(heartbeat.clock_json) if heartbeat and heartbeat.clock_json else None
    return stored if stored is not None and stored["held_since"] is not None else None


def _words(jump: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if abs(jump) >= 2 * size:
            return f"{jump / size:+.1f} {unit}"
    return f"{jump / 60:+.0f} min"
