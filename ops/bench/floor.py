"""The floor: the same work by a plain loop. Read the lists, one transaction per item, a POST; no queue, no promise."""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from csi import clock
from csi.emitter.http import Receiver, envelope, send
from csi.ingester.signature import canonical, new_request_id
from csi.net import HttpResponse, Net
from csi.simulator.youtube.app import YouTubeOptions
from ops.bench import stage

TABLE = "CREATE TABLE events (id TEXT PRIMARY KEY, body TEXT)"


def measure(per_request: int, count: int) -> dict[str, Any]:
    """In a process of its own, as the worker is."""
    with (
        tempfile.TemporaryDirectory(prefix="csi-bench-") as home,
        stage.receiver() as to,
        stage.source(count) as origin,
    ):
        facts = {"home": home, "api": origin.api, "lists": origin.lists, "endpoint": to.endpoint, "secret": to.secret}
        command = [sys.executable, "-m", "ops.bench.floor", "--per-request", str(per_request)]
        done = subprocess.run(command, input=json.dumps(facts), capture_output=True, text=True, cwd=stage.ROOT)
        if done.returncode:
            sys.exit(f"the plain loop failed:\n{done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "events": to.counts()["events"]}


def read_list(net: Net, api: str, ref: str) -> Iterator[dict[str, Any]]:
    """All items of one playlist."""
    headers, token = {"X-Goog-Api-Key": YouTubeOptions().api_key}, ""
    while token is not None:
        query = {"part": "snippet,contentDetails", "maxResults": 50, "playlistId": ref} | (
            {"pageToken": token} if token else {}
        )
        page = json.loads(net.get(f"{api}/playlistItems?{urlencode(query)}", headers=headers).body)
        yield from page["items"]
        token = page.get("nextPageToken")


def event_of(item: dict[str, Any]) -> dict[str, Any]:
    snippet = item["snippet"]
    video, now = snippet["resourceId"]["videoId"], clock.iso(time.time())
    return {
        "event_id": f"src:floor:{video}",
        "dedupe_key": f"youtube:video:{video}",
        "source": "youtube_playlist",
        "event_type": "video_added_to_playlist",
        "occurred_at": snippet["publishedAt"],
        "received_at": now,
        "emitted_at": now,
        "subject": {"platform": "youtube", "video_id": video, "title": snippet["title"]},
        "routing": {"pipeline": "bench", "priority": "standard", "tags": []},
    }


def run(facts: dict[str, Any], per_request: int) -> dict[str, float]:
    db = sqlite3.connect(Path(facts["home"]) / "floor.db", isolation_level=None)
    for statement in ("PRAGMA journal_mode=wal", "PRAGMA synchronous=normal", TABLE):
        db.execute(statement)
    net, waiting, count = Net(), [], 0
    target = Receiver(facts["endpoint"], facts["secret"].encode(), facts["secret"], 30.0)
    began, cpu = time.monotonic(), time.process_time()
    for item in (item for ref in facts["lists"] for item in read_list(net, facts["api"], ref)):
        event = event_of(item)
        db.execute("INSERT OR IGNORE INTO events VALUES (?, ?)", (event["event_id"], json.dumps(event)))
        waiting.append(event)
        count += 1
        if len(waiting) == per_request:
            post(net, target, waiting)
            waiting = []
    if waiting:
        post(net, target, waiting)
    wall = time.monotonic() - began
    return {"events_per_second": count / wall, "cpu_ms_per_event": 1000 * (time.process_time() - cpu) / count}


def post(net: Net, target: Receiver, events: list[dict[str, Any]]) -> None:
    request = new_request_id()
    body = canonical(envelope("floor", f"batch_{request}", events), "ascii")
    answer = send(net, target, body, message_id=f"batch_{request}", request_id=request, now=time.time())
    assert isinstance(answer, HttpResponse), answer
    assert answer.status == 200, answer.status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-request", type=int, required=True)
    print(json.dumps(run(json.load(sys.stdin), parser.parse_args().per_request)))


if __name__ == "__main__":
    main()
