"""The same line on PostgreSQL and Redis: another address in the config, nothing else."""

import signal

import pytest

from tests.rigs.processes import installation

pytestmark = pytest.mark.slow


def travel(box, number: int) -> None:
    """Items through a worker that is killed once on the way."""
    for index in range(number):
        box.yt.add(box.yt.playlists[index % 2], f"Item {index}")
    doomed = box.start_doomed("deliver:sent", nth=3)
    assert doomed.wait(60) == -signal.SIGKILL
    box.start()


def test_a_queue_on_redis(tmp_path, redis_url):
    with installation(tmp_path, queue=redis_url) as box:
        travel(box, 12)
        box.wait_for_delivered(12)
        assert not (box.state / "queue.db").exists()
        account = box.account()
        assert (account.lost, account.unexpected) == (0, 0)
        assert account.extra <= 4


def test_a_queue_on_postgresql(tmp_path, postgres_url):
    with installation(tmp_path, queue=postgres_url) as box:
        travel(box, 12)
        box.wait_for_delivered(12)
        account = box.account()
        assert (account.lost, account.unexpected) == (0, 0)
        assert account.extra <= 4


def test_rows_on_postgresql_and_the_queue_on_redis(tmp_path, postgres_url, redis_url):
    import psycopg

    def states() -> dict[str, int]:
        with psycopg.connect(postgres_url) as connection:
            return dict(connection.execute("SELECT state, count(*) FROM events GROUP BY state").fetchall())

    with installation(tmp_path) as box:
        box.configure(
            csi={
                "state_dir": str(box.state),
                "log_format": "json",
                "database": postgres_url,
                "queue": redis_url,
            }
        )
        travel(box, 12)
        # leases of the dead worker run out by themselves here: others may be alive
        box.wait_for(lambda: states() == {"delivered": 12}, seconds=90)
        assert not (box.state / "csi.db").exists()
