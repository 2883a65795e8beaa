"""An operation of the admin API: its route, its checks and its description come from one value."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.config.durations import parse_since
from csi.errors import ConfigError, CsiError, MissingSetting, NetError, SourceError, StoreError
from csi.logs import redact
from csi.runtime import Runtime
from csi.web.api.schema import Schema
from csi.web.responses import problem, reply
from csi.web.runtime_access import Sidecar

MAX_LIMIT = 500
BIGGEST = 2**63 - 1


class Refusal(CsiError):
    """A wish that this request cannot have fulfilled, with its status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Given(BaseModel):
    """What a caller sends: nothing unknown, nothing twice."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _whole(value: Any) -> Any:
    """Digits only: `+1`, `1.0` and digits of other scripts are typing errors, not numbers."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= 19):
        raise ValueError("must be a whole number")
    return value


def _age(value: Any) -> Any:
    return parse_since(value) if isinstance(value, str) else value


Whole = Annotated[int, BeforeValidator(_whole)]
Ago = Annotated[float, BeforeValidator(_age)]
"""A length of time before now: `1h`, `2d`, `1 hour ago`."""


@dataclass(frozen=True)
class Call:
    """One request, checked."""

    path: Mapping[str, str]
    query: Any = None
    body: Any = None

    @property
    def number(self) -> int:
        """The id in the path. 404 for what cannot be one."""
        text = self.path["id"]
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise Refusal(404, "there is nothing of that number")
        return int(text)


Run = Callable[[Runtime, Call], Mapping[str, Any] | Response]
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Operation:
    """`run` answers in a thread of its own; `endpoint` where that is not enough."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    summary: str
    answer: Schema
    run: Run | None = None
    endpoint: Endpoint | None = None
    query: type[Given] | None = None
    body: type[Given] | None = None
    text_body: str | None = None
    """What the body is, where it is not JSON."""
    media_type: str = "application/json"
    is_slow: bool = False
    """A look that counts many rows: it has its time, and does not keep short reads waiting."""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """What may be wrong beyond what may be wrong everywhere."""

    @property
    def tag(self) -> str:
        return self.path.split("/")[1]

    def route(self) -> Route:
        return Route(self.path, self.endpoint or self._answer, methods=[self.method], name=self.name)

    async def _answer(self, request: Request) -> Response:
        sidecar: Sidecar = request.app.state.sidecar
        run = self.run
        assert run is not None
        try:
            call = Call(request.path_params, self._query(request), await self._body(request))
            ask = sidecar.ask if self.method == "GET" and not self.is_slow else sidecar.work
            found = await ask(lambda rt: run(rt, call))
        except Refusal as refusal:
            return problem(refusal.status, str(refusal))
        except (NetError, SourceError) as error:
            return problem(502, redact(str(error)))
        except CsiError as error:
            if isinstance(error, StoreError | ConfigError) and not isinstance(error, MissingSetting):
                raise  # nobody can be served; the app says so
            return problem(409, redact(str(error)))
        return found if isinstance(found, Response) else reply(found)

    def _query(self, request: Request) -> Any:
        return checked(self.query or Given, _once(request.query_params.multi_items()), "parameter")

    async def _body(self, request: Request) -> Any:
        if self.method != "POST":
            return None
        content = await request.body()
        if self.text_body is not None:
            return content
        return checked(self.body or Given, _object(content, request.headers.get("content-type", "")), "key")


def checked(model: type[Given], given: Mapping[str, Any], noun: str) -> Given:
    """Refusal 400 says which one is wrong and what it may be; it never repeats what was sent."""
    known = list(model.model_fields)
    if any(name not in known for name in given):
        names = f"known are {', '.join(known)}" if known else "there are none"
        raise Refusal(400, f"unknown {noun}; {names}")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"][:1])
        raise Refusal(400, f"{place or 'the body'}: {fault['msg'].removeprefix('Value error, ')}") from error


def _once(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """An empty parameter is as good as absent."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise Refusal(400, "a parameter is given twice")
        given[name] = value
    return {name: value for name, value in given.items() if value}


def _object(content: bytes, media_type: str) -> dict[str, Any]:
    if not content.strip():
        return {}
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "send JSON, with Content-Type: application/json")
    if b"\\u0000" in content:
        raise Refusal(400, "no text holds a NUL")
    try:
        found = json.loads(content, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is not JSON that can be used") from error
    if not isinstance(found, dict):
        raise Refusal(400, "the body must be a JSON object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found
