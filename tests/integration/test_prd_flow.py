"""PRD §10.3: poll a playlist through the admin API, and find its events."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx import ASGITransport, AsyncClient

from csi.store import db, watches
from tests.fakes.youtube import SimulatedYouTube, simulated_youtube

TOKEN = "canary-admin-token-0123"
CONFIG = """
web: {{allowed_hosts: [test]}}
sources:
  youtube_playlist:
    api_base_url: {url}
    first_poll: all
    playlists: [{playlists}]
  youtube_channel_rss:
    feed_url_template: "{feed}"
    first_poll: all
    watchlist: [{{channel_id: {channel}}}]
"""


@pytest.fixture
def youtube() -> Iterator[SimulatedYouTube]:
    with simulated_youtube(channels=1, playlists=3, videos=4) as site:
        yield site


@pytest.fixture(autouse=True)
def service(youtube: SimulatedYouTube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment that `csi.main.app` reads at its first request."""
    from csi.main import app

    file = tmp_path / "config.yaml"
    playlists = ", ".join(f"{{id: {ref}}}" for ref in youtube.playlists)
    file.write_text(
        CONFIG.format(
            url=youtube.api_base_url,
            playlists=playlists,
            feed=youtube.feed_url_template,
            channel=youtube.channels[0],
        )
    )
    for name, value in {
        "CSI_CONFIG_PATH": str(file),
        "CSI_STATE_DIR": str(tmp_path / "state"),
        "CSI_ADMIN_TOKEN": TOKEN,
        "YOUTUBE_API_KEY": youtube.api_key,
    }.items():
        monkeypatch.setenv(name, value)
    app.state.reset()
    yield
    app.state.reset()


@pytest.mark.asyncio
async def test_youtube_playlist_to_ua_flow() -> None:
    """End-to-end: YouTube playlist → CSI → UA."""
    from csi.main import app

    # Start CSI service
    transport = ASGITransport(app=app)
    headers = {"Authorization": f"Bearer {TOKEN}"}  # the admin API is closed without it (decision 0042, 50)
    async with AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        # Trigger playlist poll
        response = await client.post("/admin/adapters/youtube_playlist/poll")
        assert response.status_code == 200

        # Check event was stored
        events_response = await client.get("/admin/events")
        assert len(events_response.json()["events"]) > 0


@pytest.mark.asyncio
async def test_every_item_is_an_event_once(youtube: SimulatedYouTube) -> None:
    from csi.main import app

    path, headers = "/admin/adapters/youtube_playlist/poll", {"Authorization": f"Bearer {TOKEN}"}
    async with AsyncClient(transport=ASGITransport(app=app), base_url="http://test", headers=headers) as client:
        first = (await client.post(path)).json()
        assert first == {
            "adapter": "youtube_playlist", "watches": 3, "polled": 3, "busy": 0, "new_items": 12, "errors": [],
        }  # fmt: skip
        again = (await client.post(path)).json()
        assert (again["polled"], again["busy"], again["new_items"], again["errors"]) == (3, 0, 0, [])
        youtube.add(youtube.playlists[0], "Über 🚀")
        assert (await client.post(path)).json()["new_items"] == 1
        newest = (await client.get("/admin/events?limit=1")).json()["events"][0]
        assert (newest["subject"]["title"], newest["state"]) == ("Über 🚀", "pending")
        assert len((await client.get("/admin/events?limit=500")).json()["events"]) == 13
        metrics = (await client.get("/metrics")).text
    assert 'csi_events_total{source="youtube_playlist",status="stored"} 13.0' in metrics
    assert 'csi_pending_events{tier="urgent"} 13.0' in metrics
    assert 'csi_polls_total{result="ok",source="youtube_playlist"} 9.0' in metrics


@pytest.mark.asyncio
async def test_the_other_source_is_left_alone(youtube: SimulatedYouTube) -> None:
    from csi.main import app

    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with AsyncClient(transport=ASGITransport(app=app), base_url="http://test", headers=headers) as client:
        answer = (await client.post("/admin/adapters/youtube_channel_rss/poll")).json()
    assert (answer["watches"], answer["new_items"]) == (1, 4)
    with db.connection():
        assert all(watch.last_poll_at is None for watch in watches.of_source("youtube_playlist"))


@pytest.mark.asyncio
async def test_the_same_on_postgresql(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from csi.main import app

    monkeypatch.setenv("CSI_DATABASE_URL", postgres_url)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with AsyncClient(transport=ASGITransport(app=app), base_url="http://test", headers=headers) as client:
        assert (await client.post("/admin/adapters/youtube_playlist/poll")).json()["new_items"] == 12
        page = (await client.get("/admin/events?limit=5&state=pending")).json()
        assert (len(page["events"]), page["next"]) == (5, page["events"][-1]["id"])
        assert (await client.get("/readyz")).json()["database"]["ok"] is True
        assert 'csi_pending_events{tier="urgent"} 12.0' in (await client.get("/metrics")).text
    assert db.is_postgres()
