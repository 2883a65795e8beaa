"""YouTube's own captions: through youtube-transcript-api, or from an endpoint that serves them as YouTube's json3."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from csi import clock
from csi.errors import MissingSetting, NetError
from csi.net import Net
from csi.processing.providers.base import ProviderError, Segment, Transcript, TranscriptRequest
from csi.processing.providers.http_errors import read_json, refusal, unreachable
from csi.processing.providers.transcript_formats import base_language, from_json

NEEDS = "captions need the extra: pip install 'csi[processing]' (or set transcription.captions.base_url)"
TIMEOUT = 20.0
NO_CAPTIONS = ("captions_off", "there are no captions")

# What the library says, and what it means to us. Named as text: the library is imported only when it is used.
_ABSENT = {
    "TranscriptsDisabled": "captions_off",
    "NoTranscriptFound": "wrong_language",
    "VideoUnavailable": "video_unavailable",
    "VideoUnplayable": "video_unavailable",
    "AgeRestricted": "age_restricted",
    "InvalidVideoId": "video_unavailable",
}


class CaptionTranscriber:
    """transcription.providers: [captions]"""

    name = "captions"

    def __init__(
        self, net: Net, base_url: str | None = None, api: Any = None, now: Callable[[], float] = clock.now
    ) -> None:
        self._net, self._base, self._api, self._now = net, base_url, api, now

    def check(self) -> None:
        """MissingSetting where the library is absent: said at the start, not at the first video."""
        if self._base is None and self._api is None:
            self._api = _library()

    def fetch(self, wanted: TranscriptRequest) -> Transcript:
        return self._from_endpoint(wanted) if self._base else self._from_youtube(wanted)

    def _from_endpoint(self, wanted: TranscriptRequest) -> Transcript:
        query = {"v": wanted.video_id, "fmt": "json3"} | ({"lang": wanted.languages[0]} if wanted.languages else {})
        try:
            answer = self._net.get(f"{self._base}/api/timedtext?{urlencode(query)}")
        except NetError as error:
            raise unreachable(error, "captions") from error
        if answer.status == 404:
            raise _absent(*NO_CAPTIONS)
        if answer.status != 200:
            raise refusal(answer, "captions", self._now())
        data = read_json(answer, "captions")
        found = from_json(data, provider=self.name, source=wanted.url)
        _check_language(found.language, wanted)
        return found

    def _from_youtube(self, wanted: TranscriptRequest) -> Transcript:
        self.check()
        try:
            tracks = list(self._api.list(wanted.video_id))
            track = _choose(tracks, wanted.languages)
            fetched = None if track is None else track.fetch()
        except Exception as error:
            raise _explain(error) from error
        if fetched is None:
            raise _absent("wrong_language", "in none of the wanted languages") if tracks else _absent(*NO_CAPTIONS)
        segments = tuple(Segment(piece.start, piece.text.replace("\n", " ")) for piece in fetched)
        return Transcript(
            text=" ".join(" ".join(segment.text for segment in segments).split()),
            provider=self.name,
            language=fetched.language_code,
            segments=segments,
            source=wanted.url,
        )


def _choose(tracks: list[Any], languages: tuple[str, ...]) -> Any:
    """A wanted language (`en` is also `en-GB`), written by people if possible; without a wish whatever there is.

    None where there is nothing of the kind.
    """
    wanted = [base_language(name) for name in languages]
    fitting = [track for track in tracks if not wanted or base_language(track.language_code) in wanted]
    return min(fitting, key=lambda track: _rank(track, languages, wanted), default=None)


def _rank(track: Any, languages: tuple[str, ...], wanted: list[str]) -> tuple[int, bool, bool]:
    place = wanted.index(base_language(track.language_code)) if wanted else 0
    return place, bool(track.is_generated), track.language_code not in languages


def _explain(error: Exception) -> ProviderError:
    name = type(error).__name__
    if name in _ABSENT:
        return _absent(_ABSENT[name], name)
    return ProviderError(f"captions: YouTube did not give them ({name})", fault="transient", code=f"captions_{name}")


def _absent(code: str, words: str) -> ProviderError:
    return ProviderError(f"captions: {words}", fault="absent", code=code, error_type="invalid_audio")


def _check_language(language: str | None, wanted: TranscriptRequest) -> None:
    if wanted.languages and language and base_language(language) not in map(base_language, wanted.languages):
        raise _absent("wrong_language", f"they are in {language}")


def _library() -> Any:
    try:
        from requests import Session
        from youtube_transcript_api import YouTubeTranscriptApi
    except ImportError as error:
        raise MissingSetting(NEEDS) from error
    session = Session()
    session.request = partial(session.request, timeout=TIMEOUT)  # type: ignore[method-assign]  # it has none of its own
    return YouTubeTranscriptApi(http_client=session)
