"""A backfill of a thousand videos by real workers that die of SIGKILL at every one of its steps."""

import json
import signal
from pathlib import Path

import pytest

from tests.fakes.doomed_worker import JOB_POINTS
from tests.rigs.processes import Installation, installation

pytestmark = pytest.mark.faults
VIDEOS = 1_000
LAST = "job-end"
ONCE = ("job-claim", LAST)
"""What happens once in a worker's life; of the others it gets one or two done."""


def status(box: Installation, job: str) -> str:
    return (box.rows(f"SELECT status FROM jobs WHERE id = '{job}'") or [("",)])[0][0]


def begin(box: Installation) -> str:
    """A worker makes the database; then the channel is added, as a person would."""
    now = box.yt.site.options.now()
    channel = box.yt.world.add_channel("Many", at=now - 2_000 * 86_400).id
    for number in range(VIDEOS):
        box.yt.world.upload(channel, f"Video {number}", at=now - 3_600 - number * 3_600)
    assert box.csi("db", "migrate").returncode == 0
    added = box.csi("channels", "add", channel, "--no-watch", "--json")
    assert added.returncode == 0, added.stderr
    return str(json.loads(added.stdout)["job"])


def test_killed_at_every_step_it_completes_with_each_video_once(tmp_path: Path) -> None:
    with installation(tmp_path, channels=0, playlists=0) as box:
        job, deaths = begin(box), 0
        for place, point in enumerate(sorted(JOB_POINTS, key=lambda name: name.startswith(LAST))):
            if status(box, job) == "completed":
                break
            worker = box.start_doomed(point, 1 if point.startswith(ONCE) else 2 + place % 2)
            assert worker.wait(90) == -signal.SIGKILL, box.log.read_text()[-3_000:]
            deaths += 1
        worker = box.start()
        box.wait_for(lambda: status(box, job) == "completed", seconds=90)
        worker.terminate()
        worker.wait(30)
        counted = box.rows("SELECT COUNT(*), COUNT(DISTINCT id), COUNT(last_refreshed_at) FROM videos")
        booked = box.rows("SELECT SUM(quota_used) FROM api_budget")[0][0]
        used = box.yt.site.quota.used(box.yt.site.options.now())
        print(f"\ndeaths={deaths} videos={counted[0][0]} units booked={booked} counted={used}")
        assert counted == [(VIDEOS,) * 3]
        assert used <= booked
        assert deaths >= len(JOB_POINTS) - 1
