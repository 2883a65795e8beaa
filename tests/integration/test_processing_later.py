"""Videos that cannot be processed yet: late captions, premieres and streams, and videos that are retried by command."""

import itertools
import json
from dataclasses import dataclass, field

import pytest
from youtube_transcript_api import TranscriptsDisabled, VideoUnplayable

from csi import clock as csi_clock
from csi.demo.processing_account import ProcessingMonitor, account_lines
from csi.errors import CsiError
from csi.net import Net
from csi.processing import status
from csi.processing.pages.health import render
from csi.processing.pipeline import maintenance
from csi.processing.pipeline.retry_video import retry_video
from csi.processing.providers.base import Segment
from csi.processing.providers.captions import CaptionTranscriber
from csi.processing.providers.video_facts import CatalogueFacts, VideoFacts, YouTubeFacts
from csi.processing.store import audit, dead_jobs, jobs, videos
from tests.fakes.providers import FakeAssembly, ScriptedServer
from tests.rigs.processing_bench import TEXT

VIDEO = "vid00000001"
HOUR = 3600.0


@dataclass
class Known:
    """A source of facts that a test fills."""

    facts: dict[str, VideoFacts] = field(default_factory=dict)
    asked: int = 0

    def find(self, video_id: str, *, is_stream: bool) -> VideoFacts | None:
        self.asked += 1
        return self.facts.get(video_id)


def upload(bench, **subject):
    bench.deliver(VIDEO, text=None, subject={"published_at": csi_clock.iso(bench.clock()), **subject})


def write_transcript(bench, text: str = TEXT) -> None:
    (bench.home / "transcripts" / f"{VIDEO}.txt").write_text(text)


def asks(bench) -> list[float]:
    """The ages at which a transcript was asked for and did not exist."""
    entries = audit.search(limit=1000, video=VIDEO)
    born = csi_clock.parse(videos.get(VIDEO).doc.published_at)
    return sorted(csi_clock.parse(one.timestamp) - born for one in entries if one.action == "provider_call")


@pytest.mark.parametrize("age", [500, 5 * HOUR, 70 * HOUR])
def test_captions_that_come_late_are_found(open_bench, clock, age):
    bench = open_bench()
    upload(bench)
    bench.run_for(age, stride=300)
    assert (bench.status(VIDEO), jobs.waiting_by_reason()) == ("transcription_queued", {"transcript": 1})
    write_transcript(bench)
    bench.start()  # the wait is a row: another process finds it
    bench.run_for(73 * HOUR, stride=600)
    assert bench.status(VIDEO) == "summarized"
    assert [name for name, _ in videos.steps(VIDEO)] == [
        "discovered",
        "transcription_queued",
        "transcribed",
        "summarized",
    ]
    assert bench.job(f"tr_{VIDEO}").doc.error_message is None
    assert dead_jobs.open_count() == 0


def test_captions_are_asked_for_by_the_age_of_the_video_and_then_it_is_skipped(open_bench):
    bench = open_bench()
    upload(bench)
    bench.run_for(80 * HOUR, stride=300)
    assert [round(age / 60) for age in asks(bench)] == [0, 10, 60, 360, 1440, 4320]
    assert bench.status(VIDEO) == "skipped"


def test_a_premiere_is_processed_when_it_is_over(open_bench, clock):
    bench, known = open_bench(), Known()
    bench.rt.fact_sources = (known,)
    starts_at = clock() + 30 * HOUR
    known.facts[VIDEO] = VideoFacts(broadcast="upcoming", starts_at=starts_at)
    upload(bench, kind="upcoming", duration_seconds=None)
    bench.run_for(31 * HOUR, stride=600)
    assert (bench.status(VIDEO), jobs.waiting_by_reason()) == ("transcription_queued", {"stream_end": 1})
    assert asks(bench) == []
    known.facts[VIDEO] = VideoFacts(duration=900.0, broadcast="none", channel_title="A creator")
    bench.run_for(5 * HOUR, stride=600)
    assert jobs.waiting_by_reason() == {"transcript": 1}
    write_transcript(bench)
    bench.run_for(70 * HOUR, stride=600)
    assert bench.status(VIDEO) == "summarized"
    assert (videos.get(VIDEO).kind, videos.get(VIDEO).doc.duration_sec) == ("video", 900.0)


def test_a_stream_that_is_longer_than_the_limit_is_skipped_when_it_is_over(open_bench):
    bench, known = open_bench(), Known()
    bench.rt.fact_sources = (known,)
    known.facts[VIDEO] = VideoFacts(broadcast="live")
    upload(bench, kind="live", duration_seconds=None)
    bench.run_for(2 * HOUR, stride=600)
    known.facts[VIDEO] = VideoFacts(duration=20_000.0, broadcast="none")
    bench.run_for(HOUR, stride=600)
    assert bench.status(VIDEO) == "skipped"
    assert "limits.max_duration" in videos.get(VIDEO).doc.last_error


def test_a_stream_of_which_nothing_is_known_is_asked_for_captions_for_a_month(open_bench):
    bench = open_bench()
    upload(bench, kind="live")
    bench.run_for(100 * HOUR, stride=1200)
    assert (bench.status(VIDEO), len(asks(bench))) == ("transcription_queued", 7)
    write_transcript(bench)
    bench.run_for(30 * HOUR, stride=1200)
    assert bench.status(VIDEO) == "summarized"


def test_a_signal_that_says_the_premiere_is_a_video_ends_the_wait(open_bench):
    bench = open_bench()
    upload(bench, kind="upcoming", duration_seconds=None)
    bench.drain()
    assert jobs.waiting_by_reason() == {"stream_end": 1}
    bench.deliver(VIDEO, subject={"kind": "video", "duration_seconds": 700})
    bench.drain()
    assert (bench.status(VIDEO), videos.get(VIDEO).doc.duration_sec) == ("summarized", 700)


@pytest.mark.parametrize("rule", ["kind", "transcript"])
def test_a_skipped_video_is_discovered_again_by_command(open_bench, rule):
    bench = open_bench(limits={"skip_kinds": ["short"]})
    bench.deliver(VIDEO, text=None, subject={"kind": "short" if rule == "kind" else "video"})
    bench.drain()
    assert bench.status(VIDEO) == "skipped"
    write_transcript(bench)
    words, wakes = retry_video(bench.rt, VIDEO)
    assert words == "is discovered again"
    assert wakes[0].step == "admit"
    bench.drain()
    assert bench.status(VIDEO) == "summarized"
    steps = [name for name, _ in videos.steps(VIDEO)]
    lives = [list(group) for is_end, group in itertools.groupby(steps, lambda name: name == "skipped") if not is_end]
    assert [life[0] for life in lives] == ["discovered", "discovered"]
    with pytest.raises(CsiError, match="is summarized"):
        retry_video(bench.rt, VIDEO)
    with pytest.raises(CsiError, match="there is no video"):
        retry_video(bench.rt, "nothing")


def test_a_failed_and_a_waiting_video_are_retried_by_command(open_bench):
    bench = open_bench()
    (bench.home / "transcripts" / f"{VIDEO}.json").write_text("{broken")
    bench.deliver(VIDEO, text=None)
    bench.drain()
    assert bench.status(VIDEO) == "failed"
    (bench.home / "transcripts" / f"{VIDEO}.json").write_text(json.dumps({"text": TEXT}))
    assert retry_video(bench.rt, VIDEO)[0] == "is retried"
    bench.drain()
    assert bench.status(VIDEO) == "summarized"
    born = csi_clock.iso(bench.clock())
    bench.deliver("vid00000002", text=None, subject={"published_at": born})
    bench.drain()
    (bench.home / "transcripts" / "vid00000002.txt").write_text(TEXT)
    assert maintenance.due_wakes(bench.rt) == []
    assert retry_video(bench.rt, "vid00000002")[0] == "is due now"
    bench.drain()
    assert bench.status("vid00000002") == "summarized"


class FactServer(ScriptedServer):
    """The Data API and the ingester's admin API, as far as facts of videos go."""

    def answer(self, method, path, headers, body):
        bare = path.partition("?")[0]
        if bare == "/admin/videos/v1":
            return 200, {"id": "v1", "channel_id": "UC1", "duration": 61, "view_count": 7, "title": "T"}, {}
        if bare == "/admin/channels/UC1":
            return 200, {"id": "UC1", "title": "A creator"}, {}
        if bare in ("/videos", "/videos:batchGetStats") and headers.get("x-goog-api-key") == "key-123":
            snippet = {"liveBroadcastContent": "upcoming", "channelTitle": "A creator", "title": "T"}
            live = {"scheduledStartTime": "2026-03-01T10:00:00Z"}
            item = {"id": "v1", "contentDetails": {"duration": "PT1M2S"}, "statistics": {"viewCount": "12"}}
            return (
                200,
                {"items": [item | ({"snippet": snippet, "liveStreamingDetails": live} if bare == "/videos" else {})]},
                {},
            )
        return 404, {"error": "not found"}, {}


def test_the_catalogue_and_the_data_api_tell_what_they_know():
    with FactServer() as server:
        catalogue = CatalogueFacts(Net(), server.url, "token-1")
        assert catalogue.find("v1", is_stream=False) == VideoFacts(61.0, 7, "T", "A creator", channel_id="UC1")
        assert catalogue.find("v2", is_stream=False) is None
        youtube = YouTubeFacts(Net(), server.url, "key-123")
        assert youtube.find("v1", is_stream=False) == VideoFacts(62.0, 12)
        found = youtube.find("v1", is_stream=True)
        assert (found.broadcast, found.starts_at) == ("upcoming", csi_clock.parse("2026-03-01T10:00:00Z"))
        assert [path for _, path, _ in server.requests if "key" in path] == []
        server.faults = {"/videos:batchGetStats": [403]}
        assert youtube.find("v1", is_stream=False).duration == 62.0
        server.always = {
            "/videos": (200, b"<html>", {}),
            "/videos:batchGetStats": (200, {"items": [{"id": "other"}]}, {}),
        }
        assert youtube.find("v1", is_stream=False) is None


def test_the_demo_does_not_wait_for_the_end_of_a_premiere(open_bench, tmp_path):
    bench = open_bench()
    upload(bench, kind="upcoming", duration_seconds=None)
    config = tmp_path / "processing.yaml"
    config.write_text(f"state_dir: {bench.settings.state_dir}\nreceiver_db: {bench.settings.receiver_db}\n")
    monitor = ProcessingMonitor(config)
    assert not monitor.is_done()
    bench.drain()
    assert monitor.is_done()
    account = monitor.account()
    assert (account.videos, account.waiting, account.unfinished) == (1, 1, 0)
    assert "1 waiting for captions or the end of a stream" in account_lines(account)[0]


class Premiere:
    """YouTube's own captions for a video whose feed does not tell that it is a premiere."""

    name = "captions"

    def __init__(self, clock, begins: float, ends: float) -> None:
        self.clock, self.begins, self.ends = clock, begins, ends

    def list(self, video_id: str) -> list[object]:
        if self.clock() < self.begins:
            raise VideoUnplayable(video_id, "Premieres in 8 days", [])
        if self.clock() < self.ends + 3 * HOUR:
            raise TranscriptsDisabled(video_id)
        return [self]

    language_code, is_generated = "en", True

    def fetch(self):
        return self

    def __iter__(self):
        return iter([Segment(0.0, TEXT)])


def test_a_premiere_that_only_youtubes_words_tell_of_is_waited_for(open_bench, clock):
    bench = open_bench()
    begins = clock() + 8 * 24 * HOUR
    api = Premiere(clock, begins, begins + HOUR)
    bench.rt.free["file"] = CaptionTranscriber(bench.rt.net, api=api)
    upload(bench)
    bench.run_for(7 * 24 * HOUR, stride=HOUR)
    assert (bench.status(VIDEO), jobs.waiting_by_reason()) == ("transcription_queued", {"transcript": 1})
    assert bench.job(f"tr_{VIDEO}").doc.error_message == "captions: Premieres in 8 days"
    bench.run_for(5 * 24 * HOUR, stride=HOUR)
    assert bench.status(VIDEO) == "summarized"


def test_captions_that_the_owner_uploaded_are_waited_for_before_audio_is_paid(open_bench, clock, tmp_path):
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / f"{VIDEO}.mp3").write_bytes(b"audio")
    with FakeAssembly() as assembly, ScriptedServer() as captions:
        captions.always = {"/api/timedtext": 404}
        audio = {"base_url": assembly.url, "audio_dir": tmp_path / "audio"}
        providers = {"providers": ["captions", "assemblyai"], "captions": {"base_url": captions.url}}
        bench = open_bench(transcription={**providers, "assemblyai": audio})
        bench.rt.fact_sources = (Known({VIDEO: VideoFacts(600.0, 5, has_captions=True)}),)
        upload(bench, duration_seconds=None)
        bench.run_for(HOUR, stride=300)
        assert (assembly.billed, jobs.waiting_by_reason()) == (0, {"transcript": 1})
        bench.run_for(73 * HOUR, stride=HOUR)  # they never came: then it is worth its money
        assert (assembly.billed, bench.status(VIDEO)) == (1, "summarized")


def test_status_says_what_waits_for_a_person(open_bench, clock):
    bench = open_bench(dlq={"max_rounds": 1, "retry_after": 3600})
    assert dead_jobs.for_a_person(rounds=1) == 0
    (bench.home / "transcripts" / f"{VIDEO}.json").write_text("{broken")
    upload(bench)
    bench.run_for(0)
    assert dead_jobs.for_a_person(rounds=1) == 1  # a broken file is not repaired by waiting
    bench.deliver("vid00000002", text=None, subject={"published_at": csi_clock.iso(bench.clock())})
    bench.run_for(0)
    assert status.waiting_jobs(bench.rt) == {"person": 1, "transcript": 1}
    told = render(bench.rt).decode()
    for reason, count in {"person": 1, "transcript": 1, "stream_end": 0, "budget": 0, "file": 0}.items():
        assert f'csi_processing_waiting_jobs{{reason="{reason}"}} {count}.0' in told
    (bench.home / "transcripts" / f"{VIDEO}.json").unlink()
    write_transcript(bench)
    retry_video(bench.rt, VIDEO)
    assert dead_jobs.for_a_person(rounds=1) == 0
