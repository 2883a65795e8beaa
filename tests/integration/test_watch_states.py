"""The state of a watch is the same on every surface: unknown without a worker, new before its first poll, quiet."""

import json
import re
from html import unescape

import httpx
import pytest
import time_machine
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from csi.cli.main import cli
from csi.scheduling.watch_health import usual_gap
from csi.store import db
from csi.store.models import Watch
from csi.web.app import create_app
from csi.worker.maintenance import write_heartbeat
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.in_process import InProcessPipeline

TOKEN = "watch-states-admin-token"
DAY = 86_400.0


@pytest.fixture
def line(tmp_path, clock):
    """Five watches: new, healthy, quiet, failing, paused."""
    lists = [{"id": f"PL{name}"} for name in ("new", "healthy", "quiet", "failing", "paused")]
    with db.connection():
        built = InProcessPipeline(
            *(tmp_path, clock, "http://127.0.0.1:9/"),
            secrets={"CSI_ADMIN_TOKEN": TOKEN},
            sources={"youtube_playlist": {"playlists": lists}},
        )
        now = clock()
        read = {"last_poll_at": now - 5, "last_success_at": now - 5, "first_read_at": now - 90 * DAY}
        Watch.update(**read).where(Watch.ref != "PLnew").execute()
        Watch.update(usual_gap=3600.0, last_new_at=now - 2 * DAY).where(Watch.ref == "PLquiet").execute()
        failing = {"health": "backing_off", "health_since": now - 9, "errors": 1, "last_error": "the feed answered 500"}
        Watch.update(**failing).where(Watch.ref == "PLfailing").execute()
        Watch.update(state="paused").where(Watch.ref == "PLpaused").execute()
        write_heartbeat(built.rt, now)
        yield built


ALIVE = {"PLnew": "new", "PLhealthy": "healthy", "PLquiet": "quiet", "PLfailing": "backing_off"}
DEAD = dict.fromkeys(ALIVE, "unknown") | {"PLnew": "new"}


def command(line, *words):
    db.database.close()
    env = {"CSI_UA_ENDPOINT": "http://127.0.0.1:9/", "CSI_UA_SHARED_SECRET": SECRET, "YOUTUBE_API_KEY": "demo-key"}
    config = str(line.rt.settings.csi.state_dir.parent / "config.yaml")
    with time_machine.travel(line.clock(), tick=False):
        done = CliRunner().invoke(cli, [*words, "--config", config], env=env | {"CSI_ADMIN_TOKEN": TOKEN})
    return done.stdout


@pytest.mark.parametrize(("silent", "expected"), [(5, ALIVE), (60, DEAD)], ids=["worker alive", "worker dead"])
@pytest.mark.asyncio
async def test_every_surface_shows_the_same_state(line, clock, silent, expected):
    clock.move(silent)
    listed = json.loads(command(line, "sources", "list", "--json"))["watches"]
    by_command = {one["ref"]: one["health"] for one in listed if one["state"] == "active"}
    table = command(line, "sources", "list")
    states = json.loads(command(line, "status", "--json"))["sources"][0]["states"]
    transport = httpx.ASGITransport(app=create_app(lambda: line.rt))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        found = (await client.get("/admin/sources", headers=headers)).json()["watches"]
        metrics = text_string_to_metric_families((await client.get("/metrics")).text)
        await client.post("/login", data={"token": TOKEN, "next": "/"})
        pages = [(await client.get(path)).text for path in ("/", "/sources", "/schedule")]
    overview, sources, schedule = (re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page))) for page in pages)

    assert by_command == expected
    assert {one["ref"]: one["health"] for one in found if one["state"] == "active"} == expected
    counted = {one.labels["state"]: one.value for f in metrics for one in f.samples if one.name == "csi_watches"}
    assert {state: number for state, number in counted.items() if number} == states
    for ref, state in expected.items():
        assert re.search(rf"{ref} .*\b{state}\b", table)
        word = state.replace("_", " ")
        assert word in sources
        assert word in schedule
    healthy = "1 /5 watches healthy , 1 new , 1 quiet , 1 paused" if expected is ALIVE else "0 /5 watches healthy"
    assert healthy.replace(" ", "") in overview.replace(" ", "")
    assert ("3unknown" in overview.replace(" ", "")) is (expected is DEAD)


def test_the_status_page_claims_nothing_of_watches_under_a_dead_worker(line, clock):
    assert re.search(r"youtube_playlist +4 +1 +[01] .*1 new, 1 quiet", command(line, "status"))
    clock.move(60)
    assert re.search(r"youtube_playlist +4 +1 +\? .*3 unknown, 1 new", command(line, "status"))
    assert "state is unknown while no worker is alive" in command(line, "doctor", "--offline")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], None),
        ([0, 3600, 7200, 10_800, 14_400], None),
        ([0, 3600, 7200, 10_800, 14_400, 18_000], 3600.0),
        ([0, 5, 9, 3600, 7200, 10_800, 14_400, 18_000], 3600.0),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], None),
    ],
    ids=["none", "too few", "hourly", "several at once", "all at once"],
)
def test_the_usual_gap_is_the_median_of_publications(times, expected):
    found = usual_gap(float(moment) for moment in times)
    assert found == expected or (found is not None and abs(found - (expected or 0)) < 20)
