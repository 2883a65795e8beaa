"""One operation of the admin API: its route, its parameter checks and its OpenAPI description come from one value."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.config.durations import parse_since
from csi.errors import ConfigError, CsiError, MissingSetting, NetError, SourceError, StoreError
from csi.logs import redact
from csi.web.responses import HttpProblem, problem, reply
from csi.web.shared_state import Sidecar

T = TypeVar("T")
Run = TypeVar("Run", bound=Callable[..., Any])
WITH_BODY = ("POST", "PATCH")
MAX_LIMIT = 500
MAX_ID = 2**63 - 1


class RequestModel(BaseModel):
    """The query or the body of a request. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_whole(value: Any) -> Any:
    """ASCII digits only: `+1`, `1.0` and the digits of other scripts are refused."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= 19):
        raise ValueError("must be a whole number")
    return value


Whole = Annotated[int, BeforeValidator(_check_whole)]
Ago = Annotated[
    float,
    BeforeValidator(
        lambda value: parse_since(value) if isinstance(value, str) else value, json_schema_input_type=str | float
    ),
]
"""A length of time before now: `1h`, `2d`, `1 hour ago`."""
Limit = Annotated[Whole, Field(ge=1, le=MAX_LIMIT, description="Rows per page")]
BeforeId = Annotated[Whole | None, Field(ge=1, le=MAX_ID, description="The `next` of the previous page")]


@dataclass(frozen=True)
class Operation:
    """A function with its route. Its parameters `query`, `body` and `number` say what it takes from the request.

    It is called in a thread of its own; a coroutine function gets the request itself.
    """

    method: str
    path: str
    name: str
    summary: str
    run: Callable[..., Any]
    answer: Any = None
    """The model of the response, where it is not the return type of `run`."""
    text_body: str | None = None
    """What the body is, where it is not JSON."""
    media_type: str = "application/json"
    is_slow: bool = False
    """It counts many rows: it runs among the long tasks, so that short reads do not wait for it."""
    is_deprecated: bool = False
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Statuses beyond those that every operation can have."""

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.run)

    @property
    def tag(self) -> str:
        return self.path.split("/")[1]

    @property
    def answer_type(self) -> Any:
        return self.answer or self._hints["return"]

    @property
    def query(self) -> type[RequestModel] | None:
        return self._hints.get("query")

    @property
    def body(self) -> type[RequestModel] | None:
        return None if self.text_body else self._hints.get("body")

    @property
    def path_names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    def route(self) -> Route:
        endpoint = self.run if iscoroutinefunction(self.run) else self._serve
        return Route(self.path, endpoint, methods=[self.method], name=self.name)

    async def _serve(self, request: Request) -> Response:
        sidecar: Sidecar = request.app.state.sidecar
        try:
            # The arguments of `run`, checked: also a query and a body that it does not take have to be empty
            body: Mapping[str, Any] | bytes = {}
            if self.method in WITH_BODY:
                content = await request.body()
                body = content if self.text_body else _json_object(content, request.headers.get("content-type", ""))
            inputs = self.checked_inputs(request.path_params, parameters_of(request), body)
            execute = sidecar.read if self.method == "GET" and not self.is_slow else sidecar.run
            found = await execute(lambda rt: self.run(rt, **inputs))
        except CsiError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise  # the app answers 503 and logs the cause
            return problem(refusal.status, str(refusal))
        return found if isinstance(found, Response) else reply(found)

    def checked_inputs(
        self, path: Mapping[str, str], query: Mapping[str, Any], body: Mapping[str, Any] | bytes
    ) -> dict[str, Any]:  # fmt: skip
        """The arguments of `run`. HttpProblem says which key is wrong."""
        given: dict[str, Any] = {"query": _checked(self.query or RequestModel, query, "parameter")}
        given["body"] = body if isinstance(body, bytes) else _checked(self.body or RequestModel, body, "key")
        named: dict[str, Any] = dict(path)
        if "number" in self._hints:
            text = path["id"]
            if not (text.isascii() and text.isdigit() and len(text) <= 18):  # it cannot be an id
                raise HttpProblem(404, "there is no object with this id")
            named = {"number": int(text)}
        return named | {name: value for name, value in given.items() if name in self._hints}


def refusal_of(error: CsiError) -> HttpProblem | None:
    """The status of a request that failed with this error; None where no request can be served."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, NetError | SourceError):
        return HttpProblem(502, redact(str(error)))
    if isinstance(error, StoreError | ConfigError) and not isinstance(error, MissingSetting):
        return None
    return HttpProblem(409, redact(str(error)))


class OperationList(list[Operation]):
    """The operations of one module, in the order of their functions."""

    def add(self, method: str, path: str, name: str, summary: str, **options: Any) -> Callable[[Run], Run]:
        """Decorates the function; `options` are the other fields of its Operation."""

        def decorate(run: Run) -> Run:
            self.append(Operation(method, path, name, summary, run, **options))
            return run

        return decorate


def page_of(rows: Sequence[T], limit: int) -> tuple[Sequence[T], Any]:
    """The rows of one page out of `limit` + 1 rows, and its `next`: the last id, or None on the last page."""
    shown = rows[:limit]
    return shown, shown[-1].id if len(rows) > limit else None  # type: ignore[attr-defined]


def _checked(model: type[RequestModel], given: Mapping[str, Any], noun: str) -> RequestModel:
    """400 says which key is wrong and what it may be; it never repeats what was sent."""
    known = list(model.model_fields)
    if any(name not in known for name in given):
        names = f"known are {', '.join(known)}" if known else "there are none"
        raise HttpProblem(400, f"unknown {noun}; {names}")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"][:1])
        raise HttpProblem(400, f"{place or 'the body'}: {fault['msg'].removeprefix('Value error, ')}") from error


def parameters_of(request: Request) -> dict[str, str]:
    """An empty parameter counts as absent."""
    pairs = request.query_params.multi_items()
    if len(dict(pairs)) != len(pairs):
        raise HttpProblem(400, "a parameter is given twice")
    return {name: value for name, value in pairs if value}


def _json_object(content: bytes, media_type: str) -> dict[str, Any]:
    if not content.strip():
        return {}
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise HttpProblem(415, "send JSON, with Content-Type: application/json")
    if b"\\u0000" in content:
        raise HttpProblem(400, "text must not contain NUL")  # PostgreSQL cannot store it
    try:
        # `json.loads` would also read the UTF-16 and UTF-32 of bytes.
        found = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise HttpProblem(400, "the body is not valid JSON") from error
    if not isinstance(found, dict):
        raise HttpProblem(400, "the body must be a JSON object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found
