"""`csi init`: little is asked, both files are private, nothing is overwritten, and what was written is tested."""

import os
import socket
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from csi.adapters import registry
from csi.adapters.youtube import page_lookup
from csi.cli import envfile, init
from csi.cli.init import InitChoices, config_text, env_text
from csi.cli.main import cli
from csi.config.loader import read_config
from csi.config.variables import expand
from csi.net import address_guard
from csi.store import db
from tests.fakes.background_server import serve_in_background
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver
from tests.fakes.youtube import simulated_youtube

CHANNEL = "UCsXVk37bltHxD1rDPwtNM8Q"
PLAYLIST = "PLFs4vir_WsTwEd-nJgVJCZPNL3HALHHpF"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def run(*arguments: str, text: str | None = None, terminal: bool = False, **env: str) -> Result:
        monkeypatch.setattr(init, "is_terminal", lambda: terminal)
        monkeypatch.setattr(page_lookup, "YOUTUBE", env.pop("youtube", "http://127.0.0.1:9"))
        # A simulated page and a simulated feed are on this machine; the guard has tests of its own.
        monkeypatch.setattr(address_guard, "AddressGuard", lambda: None)
        clean = {name: None for name in os.environ if name.startswith(("CSI_", "YOUTUBE_"))}
        place = ["--config", str(tmp_path / "etc" / "config.yaml")]
        db.database.close() if db.database.obj is not None else None
        return CliRunner().invoke(cli, ["init", *place, *arguments], env={**clean, **env}, input=text)

    return run


def written(tmp_path: Path) -> tuple[dict[str, str], object]:
    """The variables, and the settings that they and the config make."""
    env = envfile.read_variables(tmp_path / "etc" / "env")
    return env, read_config(Path(env["CSI_CONFIG_PATH"]), env=env, sources=registry.settings_models()).settings


def test_it_writes_two_private_files_that_load(call, tmp_path):
    result = call(
        "--yes", "--no-test", "--watch", CHANNEL, "--watch", f"https://www.youtube.com/playlist?list={PLAYLIST}"
    )
    assert result.exit_code == 0, result.output
    env, settings = written(tmp_path)
    assert [stat.S_IMODE((tmp_path / "etc" / name).stat().st_mode) for name in ("config.yaml", "env")] == [0o600] * 2
    assert len(env["CSI_UA_SHARED_SECRET"]) == 64
    assert env["CSI_UA_SHARED_SECRET"] not in result.output
    assert [watch.ref for watch in settings.sources["youtube_channel_rss"].watches] == [CHANNEL]
    assert [watch.ref for watch in settings.sources["youtube_playlist"].watches] == [PLAYLIST]
    assert settings.csi.state_dir == tmp_path / "etc" / "state"
    assert sum("#" in line for line in (tmp_path / "etc" / "config.yaml").read_text().splitlines()) >= 10


def test_nothing_to_watch_is_a_valid_beginning(call, tmp_path):
    assert call("--yes", "--no-test").exit_code == 0
    _, settings = written(tmp_path)
    assert not any(source.watches for source in settings.sources.values())
    assert not settings.sources["youtube_playlist"].enabled, "it needs a key"
    assert settings.sources["feed"].enabled, "csi sources add takes the address of a feed"


def test_files_that_are_there_stay_unless_forced_and_then_the_old_are_kept(call, tmp_path):
    call("--yes", "--no-test")
    before = (tmp_path / "etc" / "env").read_text()
    refused = call("--yes", "--no-test")
    assert isinstance(refused.exception, init.WillNotOverwrite)
    assert "--force" in str(refused.exception)
    assert (tmp_path / "etc" / "env").read_text() == before
    assert call("--yes", "--no-test", "--force", "--instance-id", "second").exit_code == 0
    assert (tmp_path / "etc" / "env.old").read_text() == before
    assert stat.S_IMODE((tmp_path / "etc" / "env.old").stat().st_mode) == 0o600
    assert written(tmp_path)[1].csi.instance_id == "second"


def test_one_existing_file_is_enough_to_write_neither(call, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "env").write_text("mine\n")
    assert isinstance(call("--yes", "--no-test").exception, init.WillNotOverwrite)
    assert os.listdir(tmp_path / "etc") == ["env"]


def test_questions_at_a_terminal_are_asked_again_after_a_wrong_answer_and_secrets_are_not_shown(call, tmp_path):
    answers = [
        *("ftp://x", "http://example.org/plain", "http://127.0.0.1:9/ingest"),
        *("short", SECRET, "AIza-the-key-of-the-test"),
        *("nonsense", "@nobody-answers", f"{CHANNEL}, {PLAYLIST} r/python"),
        "y",
    ]
    result = call("--no-test", text="\n".join(answers) + "\n", terminal=True)
    assert result.exit_code == 0, result.output
    for said in ("expected a URL", "use https", "shorter than 8", "'nonsense'", "page could not be read"):
        assert said in result.output
    assert SECRET not in result.output
    assert "the-key-of-the-test" not in result.output
    env, settings = written(tmp_path)
    assert (env["CSI_UA_SHARED_SECRET"], env["YOUTUBE_API_KEY"]) == (SECRET, "AIza-the-key-of-the-test")
    assert "UA_SIGNALS_INGEST_SHARED_SECRET" not in env, "the receiver is not ours"
    assert settings.delivery.ua_endpoint == "http://127.0.0.1:9/ingest"
    found = {name: [watch.ref for watch in source.watches] for name, source in settings.sources.items()}
    assert found["youtube_channel_rss"] == [CHANNEL]
    assert found["youtube_playlist"] == [PLAYLIST]
    assert found["reddit_subreddit"] == ["python"]
    assert settings.sources["youtube_channel_rss"].first_poll.last == 1


def test_ctrl_d_writes_nothing(call, tmp_path):
    result = call("--no-test", text="", terminal=True)
    assert result.exit_code == 1
    assert not (tmp_path / "etc").exists()


def test_our_own_receiver_gets_the_secret_and_need_not_run_yet(call, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as door:
        free = f"http://127.0.0.1:{door.getsockname()[1]}/api/v1/signals/ingest"
    result = call("--yes", "--endpoint", free)
    assert result.exit_code == 0, result.output
    assert "our receiver does not run yet" in result.output
    assert "run --receiver" in result.output
    env, _ = written(tmp_path)
    assert env["UA_SIGNALS_INGEST_SHARED_SECRET"] == env["CSI_UA_SHARED_SECRET"]
    assert len(env["CSI_ADMIN_TOKEN"]) == 64


def test_the_dashboard_gets_the_next_free_port(call, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as door:
        taken = door.getsockname()[1]
        monkeypatch.setattr(init, "WEB_PORT", taken)
        result = call("--yes", "--no-test")
    assert f"port {taken} is in use by another program" in result.output
    assert taken < written(tmp_path)[1].web.port < taken + init.PORTS_TRIED


def test_a_simulator_and_its_handles_take_the_place_of_youtube(call, tmp_path):
    with simulated_youtube(channels=1, playlists=1) as yt:
        yt.world.add_channel("Sails and Ropes", at=1_700_000_000.0, handle="@sails")
        page = ["--simulator", yt.base_url, "--newest", "--watch", "@sails", "--watch", yt.channels[0]]
        page += ["--watch", yt.playlists[0]]
        result = call("--yes", *page, "--endpoint", "http://127.0.0.1:9/api/v1/signals/ingest")
    assert result.exit_code == 0, result.output  # the key of the simulator was enough to read the playlist
    watches = written(tmp_path)[1].sources["youtube_channel_rss"].watches
    assert [watch.name for watch in watches] == ["Sails and Ropes", None]
    assert watches[1].ref == yt.channels[0]


def test_the_address_of_a_page_becomes_its_feed(call, tmp_path):
    feed = "<rss version='2.0'><channel><title>Notes: 1</title><item><guid>a</guid></item></channel></rss>"
    page = "<link rel='alternate' type='application/rss+xml' href='/rss'>"
    routes = [
        Route("/", lambda _: HTMLResponse(page)),
        Route("/rss", lambda _: Response(feed, media_type="application/rss+xml")),
    ]
    with serve_in_background(Starlette(routes=routes)) as url:
        result = call("--yes", "--no-test", "--watch", url)
    assert result.exit_code in (0, 6), result.output
    (watch,) = written(tmp_path)[1].sources["feed"].watches
    assert (watch.url, watch.name) == (f"{url}/rss", "Notes: 1")


def test_what_it_wrote_is_tested_against_the_receiver(call):
    with ScriptedReceiver() as ua:
        good = call("--yes", "--endpoint", ua.url, CSI_UA_SHARED_SECRET=SECRET)
        assert good.exit_code == 0, good.output
        assert "accepted: address, token and signature are right" in good.output
        assert len(ua.requests) == 3
    bad = call("--yes", "--force", "--endpoint", "http://127.0.0.1:9/ingest")
    assert bad.exit_code == 6
    assert "start the receiver, or correct CSI_UA_ENDPOINT" in bad.output


def test_a_test_leaves_no_database_behind(call, tmp_path):
    with ScriptedReceiver() as ua:
        call("--yes", "--endpoint", ua.url)
    assert not (tmp_path / "etc" / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (["--watch", "@handle"], {}, "YouTube's page could not be read"),
        (["--watch", "nonsense"], {}, "is nothing that can be watched; give a channel id"),
        (["--watch", "UCaaa"], {}, "is nothing that can be watched; give a channel id"),
        ([], {"CSI_UA_SHARED_SECRET": "your-secret-here"}, "CSI_UA_SHARED_SECRET: is a placeholder"),
        ([], {"CSI_UA_SHARED_SECRET_FILE": "/nowhere/at/all"}, "cannot be read"),
        (["--env", "/dev/null/env"], {}, "cannot be written"),
    ],
    ids=["handle", "nonsense", "no channel's id", "placeholder", "absent secret file", "no place"],
)
def test_bad_input_is_one_sentence(call, tmp_path, arguments, env, said):
    result = call("--yes", "--no-test", *arguments, **env)
    assert result.exception.exit_code in (2, 3), result.exception
    assert said in str(result.exception)
    assert "your-secret-here" not in str(result.exception)
    assert not tmp_path.joinpath("etc", "config.yaml").exists()


def test_a_wrong_endpoint_is_found_by_the_test(call):
    result = call("--yes", "--no-test", "--endpoint", "http://ua.example.net/ingest")
    assert result.exit_code == 6
    assert "FAIL  config" in result.output


HOSTILE = 'a"b: c # d ${HOME} \\ é {x}'


def test_any_text_survives_in_both_files(tmp_path):
    choices = InitChoices(tmp_path / "config.yaml", tmp_path / "st ate", HOSTILE)
    (tmp_path / "config.yaml").write_text(config_text(choices))
    (tmp_path / "env").write_text(env_text({"A": HOSTILE, "B": "plain", "C": ""}, dict.fromkeys("ABC", "why")))
    assert envfile.read_variables(tmp_path / "env") == {"A": HOSTILE, "B": "plain"}
    text = yaml.safe_load((tmp_path / "config.yaml").read_text())["csi"]["instance_id"]
    assert expand(text, {"HOME": "not this"}) == HOSTILE


def test_a_handle_is_found_on_its_page_and_written_as_its_id(call, tmp_path):
    page = f'<link rel="canonical" href="https://www.youtube.com/channel/{CHANNEL}">'
    with serve_in_background(Starlette(routes=[Route("/@handle", lambda _: HTMLResponse(page))])) as url:
        assert call("--yes", "--no-test", "--watch", "@handle", youtube=url).exit_code in (0, 6)
    _, settings = written(tmp_path)
    assert [watch.ref for watch in settings.sources["youtube_channel_rss"].watches] == [CHANNEL]
