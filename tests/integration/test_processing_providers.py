"""Providers: captions from the library and from an endpoint, extractive summaries, prompts, notifications."""

import json

import pytest

from csi import clock
from csi.net import Net
from csi.processing.config import ProcessingSecrets
from csi.processing.pipeline import notify
from csi.processing.providers.base import ProviderError, TranscriptRequest
from csi.processing.providers.captions import CaptionTranscriber
from csi.processing.runtime import Notifier, Processing
from csi.processing.settings import ProcessingSettings
from csi.simulator.youtube.app import create_app
from csi.simulator.youtube.captions import speech
from csi.simulator.youtube.world import World
from tests.fakes.background_server import serve_in_background
from tests.fakes.providers import FakeChat, ScriptedServer

WANTED = TranscriptRequest("dQw4w9WgXcQ", "https://youtu.be/x", 60)


def notifier(*urls: str) -> Notifier:
    rt = Processing(ProcessingSettings(), Net(), ProcessingSecrets(notify_urls=urls))

    def send(title: str, body: str) -> None:
        for one in notify.notifiers(rt).values():
            one(title, body)

    return send


def test_apprise_sends_for_us(tmp_path):
    from tests.fakes.scripted_receiver import ScriptedReceiver

    with ScriptedReceiver(then=(200, {"ok": True}, {})) as server:
        notifier(server.url.replace("http://", "json://"))("Title", "Body")
        assert server.requests[0].envelope["title"] == "Title"


def test_a_message_that_is_longer_than_a_service_takes_goes_out_in_parts():
    from tests.fakes.scripted_receiver import ScriptedReceiver

    with ScriptedReceiver(then=(200, {"ok": True}, {})) as server:
        url = server.url.replace("http://", "json://")
        notifier(url, f"{url}?overflow=truncate")("Digest", "a line of it\n" * 5_000)
        lengths = [len(request.envelope["message"]) for request in server.requests]
    assert len(lengths) == 3
    assert sum(lengths) > 65_000
    assert max(lengths) <= 32_768


def test_the_simulators_captions_are_read_and_absent_without_speech():
    world = World(1)
    channel = world.add_channel("C", at=0.0).id
    video = world.upload(channel, "Sourdough in ten minutes", at=1.0)
    live = world.upload(channel, "Now", kind="live", at=2.0)
    with serve_in_background(create_app(world)) as url:
        provider = CaptionTranscriber(Net(), url)
        found = provider.fetch(TranscriptRequest(video.id, "u", 1))
        assert found.text == " ".join(speech(video))
        assert found.segments[1].start == 4.0
        for absent in (live.id, "nothing0000"):
            with pytest.raises(ProviderError) as caught:
                provider.fetch(TranscriptRequest(absent, "u", 1))
            assert caught.value.code == "captions_off"
        with pytest.raises(ProviderError) as caught:
            provider.fetch(TranscriptRequest(video.id, "u", 1, languages=("de",)))
        assert caught.value.code == "wrong_language"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"<!DOCTYPE html><html><body>Sorry</body></html>", "bad_answer"),
        (b'{"events": [{"tStartMs": 0, "segs"', "bad_answer"),
        (b'data: {"events": []}\n\ndata: [DONE]\n\n', "bad_answer"),
        (b"[]", "bad_answer"),
    ],
    ids=["html", "cut", "sse", "list"],
)
def test_an_answer_that_is_no_captions_is_asked_for_again_and_no_transcript(answer, code):
    with ScriptedServer() as server:
        server.always = {"/api/timedtext": (200, answer, {})}
        with pytest.raises(ProviderError) as caught:
            CaptionTranscriber(Net(), server.url).fetch(WANTED)
    assert (caught.value.code, caught.value.fault) == (code, "unknown")


def test_captions_of_ten_megabytes_are_read():
    events = [{"tStartMs": 1000 * at, "segs": [{"utf8": f"sentence {at} " + "word " * 20}]} for at in range(90_000)]
    content = json.dumps({"events": events}).encode()
    assert len(content) > 10_000_000
    with ScriptedServer() as server:
        server.always = {"/api/timedtext": (200, content, {})}
        found = CaptionTranscriber(Net(), server.url).fetch(WANTED)
    assert found.text.endswith("sentence 89999 " + "word " * 19 + "word")
    assert found.segments[-1].start == 89_999


def test_a_date_in_retry_after_is_a_wait_from_now():
    with FakeChat() as server:
        server.always = {"/api/timedtext": (429, {}, {"Retry-After": "Sun, 22 Feb 2026 12:02:00 GMT"})}
        provider = CaptionTranscriber(Net(), server.url, now=lambda: clock.parse("2026-02-22T12:00:00Z"))
        with pytest.raises(ProviderError) as caught:
            provider.fetch(WANTED)
    assert caught.value.retry_after == 120.0
