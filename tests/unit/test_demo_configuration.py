"""Commands, environment and configuration of the demo's processes."""

from pathlib import Path

import pytest
import yaml

from csi.demo import configuration
from csi.demo.configuration import DemoOptions, DemoSecrets, RateTooHighError, SimulatorInfo
from csi.runtime import load_settings
from csi.simulator.youtube.content import populate
from csi.simulator.youtube.world import World

ROOT = Path(__file__).resolve().parents[2]
SIMULATOR = SimulatorInfo(
    "http://127.0.0.1:8095",
    "http://127.0.0.1:8095/youtube/v3",
    "http://127.0.0.1:8095/feeds/videos.xml?channel_id={channel_id}",
    ("UCa", "UCb"),
    ("PLa",),
)


def test_the_worker_command_is_that_of_the_procfile() -> None:
    lines = (ROOT / "Procfile").read_text().splitlines()
    worker = next(line.split()[1:] for line in lines if line.startswith("worker:"))
    assert worker == ["huey_consumer", *configuration.WORKER]


def test_the_written_configuration_loads(tmp_path: Path) -> None:
    config = configuration.ingester_config(tmp_path, SIMULATOR, "http://127.0.0.1:9/api/v1/signals/ingest", 8123)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    settings = load_settings(path, configuration.environment({}, DemoSecrets(), path))
    assert settings.web.port == 8123
    assert settings.csi.state_dir == tmp_path
    assert [watch.ref for watch in settings.sources["youtube_channel_rss"].watches] == ["UCa", "UCb"]


def test_config_demo_yaml_is_what_the_demo_writes() -> None:
    """config/demo.yaml has the ids that the simulator creates."""
    content = populate(World(0), channels=5, playlists=3, videos=1, at=1_771_761_600.0)
    simulator = SimulatorInfo(
        SIMULATOR.base_url, SIMULATOR.api_base_url, SIMULATOR.feed_url_template, content.channels, content.playlists
    )
    endpoint = "http://127.0.0.1:8090/api/v1/signals/ingest"
    expected = configuration.ingester_config(Path("csi-demo-state"), simulator, endpoint, 8091)
    assert yaml.safe_load((ROOT / "config" / "demo.yaml").read_text()) == expected


def test_settings_of_a_real_installation_do_not_reach_the_demo() -> None:
    real = {
        "CSI_UA_ENDPOINT": "https://real.example/ingest",
        "CSI_UA_BEARER_TOKEN": "real-token",
        "CSI_DATABASE_URL": "postgresql://real",
        "UA_SIGNALS_DB_PATH": "/real.db",
        "YOUTUBE_API_KEY_FILE": "/real-key",
        "PORT": "80",
        "PATH": "/usr/bin",
    }
    env = configuration.environment(real, DemoSecrets(), Path("config.yaml"))
    assert env["PATH"] == "/usr/bin"
    assert not any("real" in value for value in env.values())
    assert "PORT" not in env


def test_each_run_has_its_own_secrets() -> None:
    assert DemoSecrets().shared != DemoSecrets().shared
    assert DemoSecrets().shared not in repr(DemoSecrets())
    keys = DemoSecrets()
    assert keys.shared not in repr(keys)
    assert keys.api not in repr(keys)


@pytest.mark.parametrize(
    "options",
    [DemoOptions(), DemoOptions(channels=0, playlists=1, rate=400), DemoOptions(channels=1, playlists=0, rate=3)],
)
def test_accepted_rates(options: DemoOptions) -> None:
    configuration.check_rate(options)


@pytest.mark.parametrize("options", [DemoOptions(rate=25), DemoOptions(channels=1, playlists=0, rate=3.1)])
def test_a_rate_above_the_capacity_of_the_feeds_is_refused(options: DemoOptions) -> None:
    with pytest.raises(RateTooHighError, match=r"15 newest.*at most"):
        configuration.check_rate(options)


def test_incomplete_output_lines_are_not_read() -> None:
    facts = (
        '{"base_url": "http://h", "api_base_url": "a", "feed_url_template": "f", "channels": ["UCa"], "playlists": []}'
    )
    assert configuration.read_simulator_info("simulated YouTube listening on http://h\n" + facts) is None
    assert configuration.read_simulator_info(f"simulated YouTube listening on http://h\n{facts}\n") == SimulatorInfo(
        "http://h", "a", "f", ("UCa",), ()
    )
    assert configuration.read_receiver_endpoint("receiver listening on http://h/x") is None
    assert configuration.read_receiver_endpoint("receiver listening on http://h/x\n") == "http://h/x"
