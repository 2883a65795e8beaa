"""The provider `captions`: YouTube's captions by youtube-transcript-api, or an endpoint that serves json3."""

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from csi import clock
from csi.errors import MissingSetting
from csi.net import HttpLimits, Net
from csi.processing.providers.base import ProviderError, Segment, Transcript, TranscriptRequest, base_language
from csi.processing.providers.http_errors import call_json, record_call
from csi.processing.providers.transcript_files import MAX_BYTES, from_json
from csi.processing.sanitize import plain_line

NEEDS = "captions need the extra: pip install 'creator-signals[processing]' (or set transcription.captions.base_url)"
TIMEOUT = 20.0
LIMITS = HttpLimits(max_body=MAX_BYTES)
NO_CAPTIONS = ("captions_off", "there are no captions")
NOT_BEGUN = "not_begun"
"""The code of a premiere or stream that has not begun."""
_BEGINS = re.compile(r"(?i)\bpremieres?\b|\blive (event|stream) will (begin|start)\b")

# The library's exceptions and our codes. By name: the library is an extra and imported only when it is used.
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
        """MissingSetting when the library is not installed; called at the start, before the first video."""
        if self._base is None and self._api is None:
            self._api = _library()

    def fetch(self, request: TranscriptRequest) -> Transcript:
        if not self._base:
            return self._from_youtube(request)
        query = {"v": request.video_id, "fmt": "json3"} | ({"lang": request.languages[0]} if request.languages else {})
        url = f"{self._base}/api/timedtext?{urlencode(query)}"
        try:
            data = call_json(lambda: self._net.get(url, limits=LIMITS), "captions", self._now, method="GET", url=url)
        except ProviderError as error:
            if error.status == 404:
                raise _absent(*NO_CAPTIONS) from None
            raise
        found = from_json(data, provider=self.name, source=request.url)
        languages = [base_language(name) for name in request.languages]
        if languages and found.language and base_language(found.language) not in languages:
            raise _absent("wrong_language", f"they are in {found.language}")
        return found

    def _from_youtube(self, request: TranscriptRequest) -> Transcript:
        self.check()
        try:
            tracks = list(self._api.list(request.video_id))
            track = _choose(tracks, request.languages)
            fetched = None if track is None else track.fetch()
        except Exception as error:
            name = type(error).__name__
            reason = str(getattr(error, "reason", None) or "")
            if name == "VideoUnplayable" and _BEGINS.search(reason):
                raise _absent(NOT_BEGUN, plain_line(reason, 200)) from error
            if name in _ABSENT:
                raise _absent(_ABSENT[name], name) from error
            words = f"captions: YouTube did not return them ({name})"
            raise ProviderError(words, "transient", f"captions_{name}") from error
        if fetched is None and tracks:
            raise _absent("wrong_language", "none of them is in transcription.languages")
        if fetched is None:
            raise _absent(*NO_CAPTIONS)
        segments = tuple(Segment(piece.start, piece.text.replace("\n", " ")) for piece in fetched)
        return Transcript(
            text=" ".join(" ".join(segment.text for segment in segments).split()),
            provider=self.name,
            language=fetched.language_code,
            segments=segments,
            source=request.url,
        )


def _choose(tracks: list[Any], languages: tuple[str, ...]) -> Any:
    """The best track in an accepted language (`en` includes `en-GB`), or None. Any language when none is given.

    The order of `languages` comes first, then people's captions before generated ones, then the exact code.
    """
    accepted = [base_language(name) for name in languages]

    def rank(track: Any) -> tuple[int, bool, bool]:
        place = accepted.index(base_language(track.language_code)) if accepted else 0
        return place, bool(track.is_generated), track.language_code not in languages

    fitting = [track for track in tracks if not accepted or base_language(track.language_code) in accepted]
    return min(fitting, key=rank, default=None)


def _absent(code: str, words: str) -> ProviderError:
    return ProviderError(f"captions: {words}", "absent", code, error_type="invalid_audio")


def _library() -> Any:
    try:
        from requests import Session
        from youtube_transcript_api import YouTubeTranscriptApi
    except ImportError as error:
        raise MissingSetting(NEEDS) from error
    session = Session()
    send = session.request

    def request(method: str, url: str, **options: Any) -> Any:
        """With a timeout, which the library does not set, and in the audit log."""
        started, status = time.monotonic(), None
        try:
            answer = send(method, url, **{"timeout": TIMEOUT, **options})
            status = getattr(answer, "status_code", None)
            return answer
        finally:
            record_call(method, url, status, started)

    session.request = request  # type: ignore[assignment]
    return YouTubeTranscriptApi(http_client=session)
