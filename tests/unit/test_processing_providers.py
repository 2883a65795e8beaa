"""Providers: captions from the library and from an endpoint, extractive summaries, prompts, notifications."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import youtube_transcript_api as library

from csi.errors import ConfigError, MissingSetting
from csi.net import Net
from csi.processing.config import ProcessingSecrets
from csi.processing.pipeline import notify
from csi.processing.pipeline.settle_failure import (
    DeadLetterJob,
    NextAttempt,
    NextProvider,
    PauseProvider,
    RepeatCall,
    SkipJob,
    judge,
)
from csi.processing.providers.base import ProviderError, SummaryInput, TranscriptRequest
from csi.processing.providers.captions import CaptionTranscriber
from csi.processing.providers.extractive import NOTE, ExtractiveSummariser, split_sentences
from csi.processing.providers.openai import OpenAISummariser, load_prompt
from csi.processing.providers.transcript_files import from_json
from csi.processing.runtime import Notifier, Processing, create
from csi.processing.settings import OpenAISettings, ProcessingSettings
from tests.rigs.processing_bench import TEXT

WANTED = TranscriptRequest("dQw4w9WgXcQ", "https://youtu.be/x", 60)


class Track(SimpleNamespace):
    def fetch(self) -> Any:
        pieces = [library.FetchedTranscriptSnippet(text=f"Hello\nin {self.language_code}.", start=0.0, duration=1.0)]
        return library.FetchedTranscript(pieces, "v", self.language_code, self.language_code, self.is_generated)


class Library:
    """Stands where YouTubeTranscriptApi stands."""

    def __init__(self, *tracks: Track, error: Exception | None = None) -> None:
        self.tracks, self.error = tracks, error

    def list(self, video_id: str) -> tuple[Track, ...]:
        if self.error:
            raise self.error
        return self.tracks


def captions(*tracks: Track, error: Exception | None = None) -> CaptionTranscriber:
    return CaptionTranscriber(Net(), api=Library(*tracks, error=error))


def test_peoples_captions_come_before_generated_ones():
    found = captions(Track(language_code="en", is_generated=True), Track(language_code="de", is_generated=False))
    transcript = found.fetch(WANTED)
    assert (transcript.language, transcript.text) == ("de", "Hello in de.")


def test_a_wanted_language_wins():
    found = captions(Track(language_code="en", is_generated=True), Track(language_code="de", is_generated=False))
    assert found.fetch(TranscriptRequest("v", "u", 1, languages=("fr", "en"))).language == "en"


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [(("en",), "en-GB"), (("pt", "en"), "pt-BR"), (("en-US", "pt"), "en-GB"), (("pt-BR",), "pt-BR")],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else words,
)
def test_a_language_is_also_that_of_its_countries_and_people_come_first(wanted, chosen):
    tracks = [("en-US", True), ("en-GB", False), ("pt-BR", True), ("de", False)]
    found = captions(*(Track(language_code=code, is_generated=made) for code, made in tracks))
    assert found.fetch(TranscriptRequest("v", "u", 1, languages=wanted)).language == chosen


def test_no_wanted_language_is_absent():
    with pytest.raises(ProviderError) as caught:
        captions(Track(language_code="de", is_generated=False)).fetch(TranscriptRequest("v", "u", 1, languages=("en",)))
    assert (caught.value.fault, caught.value.code) == ("absent", "wrong_language")


@pytest.mark.parametrize(
    ("error", "fault", "code"),
    [
        (library.TranscriptsDisabled("v"), "absent", "captions_off"),
        (library.VideoUnavailable("v"), "absent", "video_unavailable"),
        (library.VideoUnplayable("v", "private", []), "absent", "video_unavailable"),
        (library.NoTranscriptFound("v", ["en"], None), "absent", "wrong_language"),
        (library.IpBlocked("v"), "transient", "captions_IpBlocked"),
        (ConnectionError("down"), "transient", "captions_ConnectionError"),
    ],
    ids=["captions off", "gone", "private", "language", "blocked", "network"],
)
def test_what_the_library_says_has_its_meaning(error, fault, code):
    with pytest.raises(ProviderError) as caught:
        captions(error=error).fetch(WANTED)
    assert (caught.value.fault, caught.value.code) == (fault, code)


def test_a_video_without_any_track_is_absent():
    with pytest.raises(ProviderError, match="there are no captions"):
        captions().fetch(WANTED)


def test_the_missing_library_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "youtube_transcript_api", None)
    with pytest.raises(MissingSetting, match=r"creator-signals\[processing\]"):
        CaptionTranscriber(Net()).check()


def test_a_server_that_never_answers_does_not_hold_a_thread_for_ever(monkeypatch):
    """The library's HTTP client has no timeout of its own: ours has."""
    from csi.processing.providers import captions as module

    given: dict[str, Any] = {}
    monkeypatch.setattr("requests.Session.request", lambda self, *args, **kwargs: given.update(kwargs))
    module._library()._fetcher._http_client.get("https://www.youtube.com/")
    assert given["timeout"] == module.TIMEOUT


def test_the_missing_apprise_is_one_sentence_at_the_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError, match=r"creator-signals\[notify\]"):
        create(ProcessingSettings(), ProcessingSecrets(notify_urls=("tgram://x/y",)))


def test_an_address_that_apprise_does_not_understand_is_told_by_its_place_at_the_start():
    with pytest.raises(ConfigError, match="number 2") as caught:
        create(ProcessingSettings(), ProcessingSecrets(notify_urls=("json://127.0.0.1", "nonsense-canary")))
    assert "canary" not in str(caught.value)


def notifier(*urls: str) -> Notifier:
    rt = Processing(ProcessingSettings(), Net(), ProcessingSecrets(notify_urls=urls))

    def send(title: str, body: str) -> None:
        for one in notify.notifiers(rt).values():
            one(title, body)

    return send


def test_an_extractive_summary_only_quotes_and_says_so():
    written = ExtractiveSummariser().write(SummaryInput("T", "C", "https://x", TEXT, max_bullets=3), ("concept",), None)
    assert len(written.summary.bullets) == 3
    assert all(bullet in TEXT for bullet in written.summary.bullets)
    assert written.summary.executive_summary.startswith(NOTE)
    assert "model" in written.summary.key_concepts
    assert NOTE in written.documents["concept"]


@pytest.mark.parametrize(
    "found",
    [
        {"events": 5},
        {"events": [7, {"tStartMs": 10**400, "segs": [{"utf8": "a"}]}, {"segs": [7, {"utf8": "b"}]}, {"segs": 7}]},
        {"segments": [{"start": -1, "text": 5, "speaker": {}}, {"start": 10**400, "text": "b"}, 7]},
    ],
    ids=["no list", "json3", "segments"],
)
def test_transcripts_of_any_shape_are_read_as_far_as_they_go(found):
    read = from_json(found, provider="file", source="x")
    assert all(segment.start == 0.0 and segment.speaker is None for segment in read.segments)
    assert read.words == len(read.segments)


@pytest.mark.parametrize(
    "text",
    ["word", "no full stop " * 500, "。".join(["東京の夜"] * 50), "!!! ??? ...", "same. " * 400, "字" * 60_000],
    ids=["one word", "no stops", "japanese", "only marks", "repetition", "no spaces"],
)
def test_extraction_copes_with_odd_speech(text):
    written = ExtractiveSummariser().write(SummaryInput("T", "C", "u", text), ("implementation",), None)
    assert len(written.summary.bullets) <= 6
    assert all(len(piece.split()) <= 60 and len(piece) <= 600 for piece in split_sentences(text))


def fail_with_system_text(part: str, system: str, user: str) -> Any:
    raise LookupError(system)


def test_prompts_are_files_with_id_and_version_and_an_own_one_wins(tmp_path):
    assert load_prompt("summary").version == "1.0"
    (tmp_path / "summary.md").write_text('---\nid: mine\nversion: "2"\n---\nAnswer {"a": 1} about {focus_areas}')
    prompt = load_prompt("summary", tmp_path)
    assert (prompt.id, prompt.version) == ("mine", "2")
    source = SummaryInput("t", "c", "u", "some words", focus_areas=("maps",))
    with pytest.raises(LookupError, match=r'Answer {"a": 1} about maps'):
        OpenAISummariser(OpenAISettings(), tmp_path).write(source, (), fail_with_system_text)
    (tmp_path / "merge.md").write_text("no head")
    with pytest.raises(ConfigError, match="a prompt begins with"):
        load_prompt("merge", tmp_path)


def failed_job(attempts: int = 0, api_tries: int = 0) -> Any:
    return SimpleNamespace(collection="jobs/transcription", attempts=attempts, api_tries=api_tries)


def error(fault: str, retry_after: float | None = None) -> ProviderError:
    return ProviderError("x", fault=fault, code="c", retry_after=retry_after)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "facts", "verdict"),
    [
        ("transient", {"api_tries": 0}, RepeatCall(110.0)),
        ("transient", {"api_tries": 4}, RepeatCall(260.0)),
        ("transient", {"api_tries": 5}, NextAttempt(160.0)),
        ("unknown", {"api_tries": 5, "attempts": 2}, NextAttempt(340.0)),
        ("transient", {"api_tries": 5, "attempts": 3}, DeadLetterJob("max_retries", can_retry=True)),
        ("absent", {}, SkipJob()),
        ("absent", {"more_providers": True}, NextProvider()),
        ("refused", {"more_providers": True}, NextProvider()),
        ("refused", {}, DeadLetterJob("fatal_error", can_retry=False)),
        ("quota", {"more_providers": True}, DeadLetterJob("quota_exceeded", can_retry=True)),
        ("account", {"more_providers": True}, PauseProvider()),
        ("refused", {"answered": True}, NextAttempt(160.0)),
    ],
    ids=[
        "first call",
        "fifth call",
        "first attempt",
        "third attempt",
        "used up",
        "absent",
        "next",
        "next if refused",
        "refused",
        "over budget",
        "no access",
        "bad answer",
    ],
)
def test_what_follows_from_a_failure(fault, facts, verdict):
    hints = {name: facts[name] for name in ("more_providers", "answered") if name in facts}
    job = failed_job(facts.get("attempts", 0), facts.get("api_tries", 0))
    assert judge(job, error(fault), 100.0, **hints) == verdict


def test_a_retry_after_makes_a_wait_longer_never_shorter():
    assert judge(failed_job(), error("transient", 90), 100.0) == RepeatCall(190.0)
    assert judge(failed_job(), error("transient", 1), 100.0) == RepeatCall(110.0)
