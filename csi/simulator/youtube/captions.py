"""Captions of the simulated YouTube: generated sentences about each video's title, in YouTube's json3 format."""

from collections.abc import Awaitable, Callable
from random import Random

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from csi.simulator.youtube.world import SimulatedVideo, World

CAPTIONS_PATH = "/api/timedtext"
WITHOUT_CAPTIONS = ("live", "upcoming")
_OPENERS = ("Welcome back.", "Hello and good evening.", "Thank you for joining me today.")
_SENTENCES = (
    "This is a film about {title}.",
    "First we look at what {word} really means, and where the idea comes from.",
    "Then we try it ourselves, with simple tools and a little patience.",
    "The most important thing about {word} is to begin with a clean setup.",
    "Next comes the part that most people get wrong: they hurry.",
    "If you measure {word} twice, you only have to do the work once.",
    "After that the result speaks for itself, and you can see every detail.",
    "Finally we compare what we expected with what happened.",
    "What I learned from {word} is that small steps are faster than big ones.",
)


def captions_handler(world: World) -> Callable[[Request], Awaitable[Response]]:
    """GET /api/timedtext?v=ID: 404 for a video that is not readable, and for a stream that has not ended."""

    async def answer(request: Request) -> Response:
        video = world.video(request.query_params.get("v", ""))
        if video is None or not video.readable or video.kind in WITHOUT_CAPTIONS:
            return Response("", 404)
        events = [
            {"tStartMs": 4000 * number, "dDurationMs": 4000, "segs": [{"utf8": line}]}
            for number, line in enumerate(speech(video))
        ]
        return JSONResponse({"wireMagic": "pb3", "language": "en", "events": events})

    return answer


def speech(video: SimulatedVideo) -> list[str]:
    """The spoken sentences of a video; the same video always gives the same sentences."""
    random, words = Random(video.id), [word for word in video.title.split() if word.isalpha()] or ["it"]
    chosen = random.sample(_SENTENCES[1:], 6)
    lines = [random.choice(_OPENERS), _SENTENCES[0], *chosen]
    return [line.format(title=video.title, word=random.choice(words).lower()) for line in lines]
