"""Case 122: titles that a pattern of the operator matches in very many ways. The worker keeps running and stops."""

import json
import sqlite3
import time

import pytest

from csi.patterns import linear
from tests.rigs.processes import ROOT, drained, installation, read_process_ledgers, tracebacks

pytestmark = pytest.mark.slow

EIGHT = r"\w{0,20}" * 8
TITLE = "x" * 100
STOPS_WITHIN, READS_WITHIN = 30.0, 60.0


@pytest.mark.parametrize("engine", ["re2", "re"])
def test_case_122_slow_title_pattern(case, tmp_path, seed, engine):
    """Release 1.0.0 stored `\\w{0,20}` eight times, and the same behind a look-behind, which RE2 does not have."""
    if engine == "re2" and linear.engine() is None:
        pytest.skip("google-re2 is not installed; enable with: pip install 'creator-signals[re2]'")
    with installation(tmp_path, channels=3, playlists=0) as box:
        first, linear_watch, refused_watch = box.yt.channels
        box.change(lambda config: config["sources"]["youtube_channel_rss"].update(watchlist=[{"channel_id": first}]))
        for ref, text in ((linear_watch, f"^{EIGHT}!"), (refused_watch, f"(?<!y){EIGHT}!")):
            assert box.csi("sources", "add", ref, "--first-poll", "all").returncode == 0
            store_pattern(box.state / "csi.db", ref, text)
        for ref in (first, linear_watch, refused_watch):
            box.yt.upload(ref, TITLE)
        env = {} if engine == "re2" else {"PYTHONPATH": f"{without_re2(tmp_path)}:{ROOT}"}
        worker, began = box.start(**env), time.monotonic()
        # Without RE2 both patterns are refused; a refused pattern keeps no item out.
        expected = 2 if engine == "re2" else 3
        box.wait_for(drained(box, expected), seconds=READS_WITHIN)
        box.wait_for(lambda: read_watches(box) == 3, seconds=READS_WITHIN)
        read, told = time.monotonic() - began, time.monotonic()
        worker.terminate()
        worker.wait(STOPS_WITHIN)
        stopped = time.monotonic() - told
        unapplied = len(box.logged("csi.pipeline.schedule", "problem"))
        account = read_process_ledgers(box)
        case.note(
            served=len(account.served),
            delivered=box.delivered(),
            not_applied=unapplied,
            read=f"{read:.0f}s<={READS_WITHIN:.0f}s",
            stopped=f"{stopped:.1f}s<={STOPS_WITHIN:.0f}s",
            tracebacks=tracebacks(box),
            seed=seed,
        )
        assert (box.delivered(), unapplied, tracebacks(box)) == (expected, expected - 1, 0)


def without_re2(home):
    """A folder that makes `import re2` fail."""
    (home / "hidden").mkdir()
    (home / "hidden" / "re2.py").write_text("raise ImportError\n")
    return home / "hidden"


def store_pattern(path, ref: str, text: str) -> None:
    """As an earlier release stored it."""
    with sqlite3.connect(path, timeout=10) as connection:
        stored = json.dumps({"title": {"match": text}})
        connection.execute("UPDATE watches SET filters_json = ? WHERE ref = ?", (stored, ref))
    connection.close()


def read_watches(box) -> int:
    return box.rows("SELECT COUNT(*) FROM watches WHERE last_success_at IS NOT NULL")[0][0]
