"""make bench: every part, or those that are named; a table of targets at the end, and all of it as JSON on demand."""

import argparse
import compileall
import dataclasses
import json
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops.bench import catalogue, figures, floor, growth, highvolume, line, peer, poll, receiver, scale, startup, targets

PARTS = ("line", "poll", "receiver", "growth", "startup", "scale", "catalogue")
ON_REQUEST = ("highvolume",)
"""Parts that run only when they are named: this one takes minutes and measures volumes, no speed."""


def measure_line(count: int, seconds: float) -> dict[str, Any]:
    few = min(count, 3_000)
    report: dict[str, Any] = {}
    for tier, per_request, number in (("standard", 100, count), ("urgent", 1, few)):
        _say(f"{tier}: plain loop, {number} items")
        plain = floor.measure(per_request, number)
        _say(f"{tier}: the line, {number} items")
        ours = line.at_once(tier, number)
        report[tier] = {
            **ours,
            "floor": plain,
            "to_floor": ours["events_per_second"] / plain["events_per_second"],
            "cpu_to_floor": plain["cpu_ms_per_event"] / ours["cpu_ms_per_event"],
        }
        if peer.is_installed():
            _say(f"{tier}: Celery and Redis, late and early acknowledgement, {number} items each")
            other, early = (peer.measure(per_request, number, acks_late=late) for late in (True, False))
            report[tier] |= {"peer": other, "to_peer": ours["events_per_second"] / other["events_per_second"]}
            report[tier]["peer_early"] = early
    _say(f"urgent: {line.STEADY_RATE:g} a second for {seconds:g} s")
    report["steady"] = line.steady(seconds)
    if peer.is_installed():
        _say("Celery and Redis, killed five times")
        report["peer_killed"] = peer.killed(1_000)
    else:
        _say(peer.ABSENT)
    return report


def measure_poll(channels: int) -> dict[str, Any]:
    _say(f"a round of {channels} feeds")
    return dataclasses.asdict(poll.measure(channels, 0.1, 30.0))


def measure_receiver(seconds: float) -> dict[str, Any]:
    _say(f"the receiver, {receiver.RATE} signed events a second for {seconds:g} s")
    return receiver.run(receiver.RATE, seconds)


def measure_growth(sizes: tuple[int, ...]) -> dict[str, Any]:
    _say(f"the cost of an event at {', '.join(f'{size:,}' for size in sizes)} keys, and urgent ones beside retention")
    return growth.measure(sizes)


def measure_catalogue(captures: int) -> dict[str, Any]:
    _say(f"a catalogue of 500 channels, 200,000 videos, {captures:,} captures, a million finished jobs")
    found = catalogue.measure_all(number=500, films=200_000, captures=captures, finished=1_000_000)
    print("\n".join(catalogue.table(found["queries"])), file=sys.stderr)
    return found | {"next_job": found["queries"][catalogue.NEXT_JOB]}


def measure_scale(count: int) -> dict[str, Any]:
    _say(f"one worker and two on PostgreSQL and Redis, {count} items")
    return scale.measure(count)


def measure_highvolume(hours: float) -> dict[str, Any]:
    found = {}
    for name, length in (("batches", hours), ("streaming", hours / 4)):
        _say(f"{name}: {length:g} simulated hours of {highvolume.SUBREDDITS} subreddits, three bursts, a slow receiver")
        found[name] = highvolume.measure(hours=length, streaming=name == "streaming")
    return found


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text} …", file=sys.stderr, flush=True)


def _work(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    sizes = tuple(size for size in growth.SIZES if size <= options.keys)
    return {
        "line": lambda: measure_line(options.count, options.seconds),
        "poll": lambda: measure_poll(options.channels),
        "receiver": lambda: measure_receiver(options.received),
        "growth": lambda: measure_growth(sizes),
        "startup": startup.measure,
        "catalogue": lambda: measure_catalogue(options.captures),
        "highvolume": lambda: measure_highvolume(options.hours),
        "scale": lambda: measure_scale(min(options.count, scale.COUNT)),
    }


def _compile() -> None:
    """Bytecode of CSI and of its libraries, as pip leaves it in an installation: neither the time of a start nor the
    memory of a process must be that of the compiler (20 MB in each process)."""
    root = Path(__file__).resolve().parents[2]
    compileall.compile_dir(sysconfig.get_paths()["purelib"], quiet=2)
    for name in ("csi", "tasks", "ops"):
        compileall.compile_dir(root / name, quiet=2)
    compileall.compile_file(root / "huey_config.py", quiet=2)


def report_of(options: argparse.Namespace) -> dict[str, Any]:
    work = _work(options)
    return {part: work[part]() for part in options.parts or PARTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, *ON_REQUEST, []], help="default: all but highvolume")
    parser.add_argument("--count", type=int, default=10_000, help="items of the line")
    parser.add_argument("--seconds", type=float, default=line.STEADY_SECONDS, help="of the steady rate")
    parser.add_argument("--received", type=float, default=60.0, help="seconds of the receiver's load")
    parser.add_argument("--channels", type=int, default=500)
    parser.add_argument("--keys", type=int, default=growth.SIZES[-1], help="no more stored keys than this")
    parser.add_argument("--captures", type=int, default=5_000_000, help="captures of the catalogue's videos")
    parser.add_argument("--hours", type=float, default=4.0, help="simulated hours of highvolume")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="say which ratio fell by more than a third; exit code 1")
    parser.add_argument("--write-baseline", action="store_true")
    options = parser.parse_args()
    if not Path("/proc/self/stat").exists():
        sys.exit("this bench reads /proc, which only Linux has")
    _compile()
    report = report_of(options)
    print(json.dumps(report) if options.json else "\n".join([*targets.table(report), "", *figures.lines(report)]))
    if options.write_baseline:
        targets.BASELINE.write_text(json.dumps(targets.ratios(report), indent=2) + "\n")
    if options.check and (fell := targets.fallen(report, targets.load_baseline())):
        sys.exit("\n".join(fell))


if __name__ == "__main__":
    main()
