"""The demo's publisher, with the real control API of the simulator."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from csi.demo.configuration import SimulatorInfo
from csi.demo.publisher import Publisher
from csi.net import Net
from csi.simulator.youtube.app import API_PATH, YouTubeOptions, create_app
from csi.simulator.youtube.world import World
from tests.fakes.background_server import serve_in_background


@pytest.fixture
def world() -> World:
    return World(1)


@pytest.fixture
def simulator(world: World, tmp_path: Path) -> Iterator[SimulatorInfo]:
    channels = tuple(world.add_channel(f"Channel {n}", at=0).id for n in range(2))
    library = world.add_channel("Library", at=0).id
    playlists = (world.add_playlist("List", owner=library, at=0).id,)
    app = create_app(world, YouTubeOptions(faults="feed:404"))
    with serve_in_background(app) as base:
        yield SimulatorInfo(base, base + API_PATH, "", channels, playlists)


def test_every_channel_and_playlist_gets_items(world: World, simulator: SimulatorInfo) -> None:
    with Net() as net:
        publisher = Publisher(net, simulator, rate=3, seed=1)
        publisher.publish_due(2.0)
    assert publisher.published == 6
    assert [world.size(ref) for ref in (*simulator.channels, *simulator.playlists)] == [2, 2, 2]


def test_it_publishes_what_is_due_and_no_more(simulator: SimulatorInfo) -> None:
    with Net() as net:
        publisher = Publisher(net, simulator, rate=2, seed=1)
        for elapsed, made in ((0.0, 0), (0.4, 0), (0.5, 1), (0.6, 1), (2.0, 4)):
            publisher.publish_due(elapsed)
            assert publisher.published == made


def test_a_playlist_does_not_grow_without_limit(
    world: World, simulator: SimulatorInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("csi.demo.publisher.MIN_PLAYLIST_ITEMS", 5)
    only_list = SimulatorInfo(simulator.base_url, simulator.api_base_url, "", (), simulator.playlists)
    with Net() as net:
        publisher = Publisher(net, only_list, rate=0.05, seed=1)
        for _ in range(12):
            publisher.publish()
    assert world.size(simulator.playlists[0]) == 5


def test_faults_can_be_ended(simulator: SimulatorInfo) -> None:
    feed = f"{simulator.base_url}/feeds/videos.xml?channel_id={simulator.channels[0]}"
    with Net() as net:
        assert net.get(feed).status == 404
        Publisher(net, simulator, rate=1).end_faults()
        assert net.get(feed).status == 200
