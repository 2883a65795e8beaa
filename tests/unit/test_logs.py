"""One flat line per record, whatever is in it; and no secret in any form."""

import base64
import io
import json
import logging
import logging.config
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
import uvicorn.config
from huey.consumer_options import ConsumerConfig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loguru import logger

from csi import logs
from csi.errors import ConfigError
from csi.logs import log, redaction, register_secret, setup, sink, take_over
from csi.logs.sink import InterceptHandler

ROOT = Path(__file__).parents[2]
SECRET = 's3cr3t/+"käse\\&%20?'


class Lines(io.StringIO):
    """What was logged."""

    @property
    def all(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.getvalue().split("\n")[:-1]]

    @property
    def last(self) -> dict[str, object]:
        return self.all[-1]


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    level, raising = root.level, logging.raiseExceptions
    monkeypatch.setattr(redaction.redactor, "forms", ())
    yield
    for handler in [known for known in root.handlers if isinstance(known, InterceptHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.raiseExceptions = raising
    logging.captureWarnings(False)
    sink._replace_sink("WARNING", "auto", None)


@pytest.fixture
def lines() -> Lines:
    stream = Lines()
    setup(format="json", level="DEBUG", stream=stream)
    return stream


@pytest.fixture
def text() -> io.StringIO:
    stream = io.StringIO()
    setup(format="text", level="DEBUG", stream=stream)
    return stream


# ── the shape of a line ───────────────────────────────────────────────────────────────────────────


def test_a_line_is_flat_and_has_the_fields_of_nfr_5_3(lines: Lines) -> None:
    before = datetime.now(UTC)
    log.info("batch delivered", batch_id="b1", attempt=2, source="youtube_channel_rss")
    got = lines.last
    assert list(got) == [
        "timestamp", "level", "message", "logger", "source", "event_type", "event_id", "batch_id", "attempt",
    ]  # fmt: skip
    assert (got["level"], got["message"], got["logger"]) == ("INFO", "batch delivered", __name__)
    assert (got["source"], got["event_type"], got["event_id"]) == ("youtube_channel_rss", None, None)
    assert (got["batch_id"], got["attempt"]) == ("b1", 2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(got["timestamp"]))
    stamp = datetime.fromisoformat(str(got["timestamp"]))
    assert abs((stamp - before).total_seconds()) < 5


def test_fields_cannot_pose_as_ours(lines: Lines) -> None:
    log.info("true", level="CRITICAL", message="false", timestamp="never", logger="x", stack_trace="y", self="z")
    got = lines.last
    assert (got["level"], got["message"], got["logger"]) == ("INFO", "true", __name__)
    assert (got["level_"], got["message_"], got["stack_trace_"]) == ("CRITICAL", "false", "y")
    assert "stack_trace" not in got


def test_bound_and_context_fields(lines: Lines) -> None:
    with logger.contextualize(event_id="e1"):
        log.debug("x", items=1)
    log.debug("y")
    first, second = lines.all
    assert (first["event_id"], first["items"]) == ("e1", 1)
    assert second["event_id"] is None


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (1.5, 1.5),
        (True, True),
        (None, None),
        (10**30, str(10**30)),
        (10**5000, "<int, not printable>"),
        (b"\xff", r"b'\xff'"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Path("/a b"), "/a b"),
        ({"a": [1, {2}]}, '{"a": [1, "{2}"]}'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (ValueError("bad"), "ValueError: bad"),
        (Hostile(), "<Hostile, not printable>"),
        ([Hostile()], '["<Hostile, not printable>"]'),
        ("x" * 5000, "x" * 1999 + "…"),
    ],
    ids=lambda value: type(value).__name__,  # pytest cannot print them all either
)
def test_any_value_becomes_a_scalar(lines: Lines, value: object, shown: object) -> None:
    log.info("x", value=value)
    assert lines.last["value"] == shown


def test_a_value_that_contains_itself(lines: Lines) -> None:
    loop: list[object] = []
    loop.append(loop)
    log.info("x", value=loop)
    assert lines.last["value"] == "[[...]]"


ANYTHING = st.text(max_size=60) | st.sampled_from(["\n", "\r\n", "\x1b[2J", "\u2028", "\x85", "\ud800", "{x}", "{"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=ANYTHING, value=ANYTHING, key=st.text(min_size=1, max_size=10), number=st.floats() | st.integers())
def test_one_line_per_record_always(message: str, value: str, key: str, number: float) -> None:
    for form in ("json", "text"):
        stream = io.StringIO(newline="")
        setup(format=form, stream=stream, secrets=["s3cr3t", ":null,"])
        log.info(message, **{key: value, "number": number})
        line = stream.getvalue()
        assert line.endswith("\n")
        assert len(line.splitlines()) == 1
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", line)
        line.encode()
        if form == "json":
            assert isinstance(json.loads(line), dict)


def test_braces_are_never_a_template(lines: Lines) -> None:
    log.info("x {y} {0} {", title="{z}")
    log.info("{} of {}")
    assert [got["message"] for got in lines.all] == ["x {y} {0} {", "{} of {}"]
    assert lines.all[0]["title"] == "{z}"


def test_a_log_call_never_raises(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    setup(stream=Broken(), format="json")
    log.error("x", value=Hostile())
    logging.getLogger("some").error("%d", "x")
    closed = io.StringIO()
    setup(stream=closed)
    closed.close()
    log.error("x")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


# ── text for people ───────────────────────────────────────────────────────────────────────────────


def test_text_is_short_and_cannot_harm_a_terminal(text: io.StringIO) -> None:
    log.warning("item is malformed", title="a\x1b[2J\nb\u202e c", item="x", empty="", n=1)
    line = text.getvalue().partition(" ")[2]
    expected = r'item is malformed title="a\x1b[2J\nb\u202e c" item=x empty="" n=1'
    assert line == f"WARNING  {__name__} {expected}\n"


def test_a_stack_in_text_is_indented(text: io.StringIO) -> None:
    try:
        raise ValueError("bad\n2026-01-01T00:00:00.000Z INFO forged")
    except ValueError:
        log.exception("failed")
    first, *rest = text.getvalue().splitlines()
    assert first.endswith(r'failed error="ValueError: bad\n2026-01-01T00:00:00.000Z INFO forged"')
    assert all(line.startswith("    ") for line in rest)


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, pipe = Terminal(), io.StringIO()
    setup(stream=screen)
    log.info("x")
    setup(stream=pipe)
    log.info("x")
    assert not screen.getvalue().startswith("{")
    assert pipe.getvalue().startswith("{")
    assert screen.getvalue().count("\n") == 1


def test_a_stream_that_knows_only_ascii(text: io.StringIO) -> None:
    raw = io.BytesIO()
    setup(format="text", stream=io.TextIOWrapper(raw, encoding="ascii"))
    log.info("Über")
    assert rb"\xdcber" in raw.getvalue()


@pytest.mark.parametrize("wrong", [{"level": "LOUD"}, {"format": "xml"}])
def test_wrong_settings_are_named(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"LOUD.*DEBUG|xml.*json"):
        setup(**wrong)


# ── exceptions ────────────────────────────────────────────────────────────────────────────────────


def fail(password: str) -> None:
    local = password + "-local"
    raise ValueError(f"cannot use {len(local)}")


def test_an_exception_has_error_and_stack_but_no_local_variables(lines: Lines) -> None:
    try:
        fail("hunter" + "2222")
    except ValueError as error:
        log.exception("failed", error="mine")
        log.opt(exception=error).warning("odd", a=1)
        log.opt(exception=True).error("again")
        log.error("no stack", error=error)
    first, second, third, fourth = lines.all
    assert first["error"] == "ValueError: cannot use 16"
    assert first["error_"] == "mine"
    assert "in fail" in str(first["stack_trace"])
    assert "hunter2222" not in lines.getvalue()
    assert (second["level"], second["a"], second["stack_trace"]) == ("WARNING", 1, third["stack_trace"])
    assert fourth["error"] == first["error"]
    assert "stack_trace" not in fourth


def test_a_long_stack_keeps_its_end(lines: Lines) -> None:
    try:
        raise ValueError("x" * 100_000 + " the end")
    except ValueError:
        log.exception("failed")
    assert len(str(lines.last["stack_trace"])) == 8000
    assert str(lines.last["stack_trace"]).endswith("the end\n")
    assert len(str(lines.last["error"])) == 2000


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────

DATA = SECRET.encode()
FORMS: dict[str, str] = {
    "raw": SECRET,
    "url": quote(SECRET, safe=""),
    "url path": quote(SECRET),
    "url plus": quote_plus(SECRET),
    "url lower": re.sub("%..", lambda match: match[0].lower(), quote(SECRET, safe="")),
    "base64": base64.b64encode(DATA).decode(),
    "base64 url": base64.urlsafe_b64encode(DATA).decode().rstrip("="),
    "hex": DATA.hex(),
    "HEX": DATA.hex().upper(),
    "json": json.dumps(SECRET)[1:-1],
    "json utf8": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "json in json": json.dumps(json.dumps(SECRET))[3:-3],
    "repr": repr(SECRET)[1:-1],
    "repr of bytes": repr(DATA)[2:-1],
}


def leaks(output: str) -> list[str]:
    escaped = [json.dumps(form)[1:-1] for form in FORMS.values()]
    return [form for form in [*FORMS.values(), *escaped] if form in output]


def say(value: str) -> None:
    """The same text in every place of a record."""
    log.info(f"message {value}", field=f"a{value}b", nested={"k": [value]}, **{f"key{value}": 1})
    logging.getLogger("some.library").warning("said %s", value)
    try:
        raise RuntimeError(value)
    except RuntimeError as error:
        log.exception("failed", cause=error)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("form", ["json", "text"])
def test_every_form_of_a_secret_is_masked(name: str, form: str) -> None:
    stream = io.StringIO()
    setup(format=form, level="TRACE", secrets=[SECRET], stream=stream)
    say(FORMS[name])
    assert leaks(stream.getvalue()) == []
    assert stream.getvalue().count("[redacted]") >= 7
    if form == "json":
        for line in stream.getvalue().splitlines():
            json.loads(line)


@pytest.mark.parametrize("before", range(7))
def test_base64_of_a_text_that_contains_a_secret(lines: Lines, before: int) -> None:
    register_secret("hunter2222-long")
    packed = base64.b64encode(b"u" * before + b"hunter2222-long" + b":tail").decode()
    log.info("x", basic=packed)
    assert base64.b64encode(b"hunter2222-long").decode()[4:12] not in lines.getvalue()
    assert "[redacted]" in str(lines.last["basic"])


def test_secrets_may_come_late_and_short_ones_are_ignored(lines: Lines) -> None:
    log.info("x", value="late-secret", other="abcde")
    register_secret("late-secret\n")
    register_secret("abcde")
    register_secret("")
    log.info("x", value="late-secret", other="abcde")
    assert [got["value"] for got in lines.all] == ["late-secret", "[redacted]"]
    assert lines.last["other"] == "abcde"


def test_a_number_can_be_a_secret(lines: Lines) -> None:
    register_secret("12345678")
    log.info("x", pin=12345678, ratio=12345678.5, count=7)
    assert (lines.last["pin"], lines.last["ratio"], lines.last["count"]) == ("[redacted]", "[redacted].5", 7)


@pytest.mark.parametrize("before", [1970, 1985, 1990, 1999, 2000, 2030])
def test_a_secret_at_the_cut_leaves_no_half(lines: Lines, before: int) -> None:
    register_secret("hunter2222-hunter3333")
    log.info("x", value=("hunter2222-hunter3333 " * 5 + "." * before)[: before - 1] + " hunter2222-hunter3333" * 20)
    assert "hunter" not in lines.getvalue()
    assert len(str(lines.last["value"])) <= 2000


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: [redacted]"),
        ("{'Authorization': 'Bearer abc.def-123'}", "{'Authorization': '[redacted]'}"),
        ("[(b'authorization', b'Basic dTpw')]", "[(b'authorization', b'[redacted]')]"),
        ('{"X-Goog-Api-Key": "abcdef"}', '{"X-Goog-Api-Key": "[redacted]"}'),
        ("GET https://h/p?key=abc&part=x", "GET https://h/p?key=[redacted]&part=x"),
        ("https://h/p?a=1&access_token=abc#f", "https://h/p?a=1&access_token=[redacted]#f"),
        ("key=abc", "key=[redacted]"),
        ("Set-Cookie: a=b; Path=/", "Set-Cookie: [redacted]; Path=/"),
        ("AIza" + "Sy0123456789abcdefghijklmnopqrstuvw", "[redacted]"),
        ("dedupe_key=youtube:rss:abc is known", "dedupe_key=youtube:rss:abc is known"),
        ("the bearer token is missing", "the bearer token is missing"),
        ("authorization, which is missing", "authorization, which is missing"),
        ("sent bearer abcdef.ghi-j to it", "sent bearer [redacted] to it"),
    ],
)
def test_what_looks_like_a_secret_is_masked_too(lines: Lines, said: str, shown: str) -> None:
    log.info(said, value=said)
    assert (lines.last["message"], lines.last["value"]) == (shown, shown)


def test_patterns_stay_quick_on_hostile_text(lines: Lines) -> None:
    began = time.perf_counter()
    for part in ("bearer ", "authorization" + " " * 3000, "key=", "cookie:", "AIza", "=", "&token", "a" * 3000):
        log.info("x", value=part * (1_000_000 // len(part)))
    assert time.perf_counter() - began < 3.0


def test_redact_is_for_texts_that_are_kept(lines: Lines) -> None:
    register_secret("hunter2222")
    assert logs.redact("no hunter2222 at /x?key=abc") == "no [redacted] at /x?key=[redacted]"


# ── the libraries' own logs ───────────────────────────────────────────────────────────────────────


def test_standard_records_arrive_with_their_name_and_level(lines: Lines) -> None:
    root = logging.getLogger()
    assert sum(isinstance(handler, InterceptHandler) for handler in root.handlers) == 1
    some = logging.getLogger("some.library")
    some.warning("a {brace} %s", "x\ny")
    some.log(25, "between")
    try:
        raise ValueError("bad")
    except ValueError:
        some.exception("broke")
    some.error("nothing is wrong", exc_info=True)
    first, second, third, fourth = lines.all
    assert (first["message"], first["logger"], first["level"]) == ("a {brace} x\ny", "some.library", "WARNING")
    assert second["level"] == "INFO"
    assert (third["error"], third["level"]) == ("ValueError: bad", "ERROR")
    assert "Traceback" in str(third["stack_trace"])
    assert "stack_trace" not in fourth


def test_warnings_are_lines(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert lines.last["logger"] == "py.warnings"
    assert "old thing" in str(lines.last["message"])


@pytest.mark.parametrize(
    ("name", "at", "shown"),
    [
        ("huey", logging.INFO, "DEBUG"),
        ("huey.consumer.Worker", logging.INFO, "DEBUG"),
        ("huey", logging.ERROR, "ERROR"),
        ("httpx", logging.INFO, "DEBUG"),
        ("httpcore.http11", logging.DEBUG, "TRACE"),
        ("peewee", logging.DEBUG, "TRACE"),
        ("uvicorn.error", logging.INFO, "INFO"),
        ("hueyish", logging.INFO, "INFO"),
    ],
)
def test_chatty_libraries_speak_one_level_lower(name: str, at: int, shown: str) -> None:
    stream = Lines()
    setup(format="json", level="TRACE", stream=stream)
    logging.getLogger(name).log(at, "said")
    assert stream.last["level"] == shown
    setup(format="json", level=shown if shown != "TRACE" else "DEBUG", stream=(quieter := Lines()))
    logging.getLogger(name).log(at, "said")
    assert len(quieter.all) == (shown != "TRACE")


def test_httpx_tells_its_urls_only_at_debug_and_without_keys(lines: Lines) -> None:
    told = 'HTTP Request: %s %s "%s %d %s"', "GET", "https://h/p?key=Canary", "HTTP/1.1", 200, "OK"
    logging.getLogger("httpx").info(*told)
    assert lines.last["level"] == "DEBUG"
    assert "Canary" not in lines.getvalue()


def test_the_handler_of_huey_consumer_is_taken_over(lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    huey = logging.getLogger("huey")
    ConsumerConfig().setup_logger(huey)
    take_over("huey")
    logging.getLogger("huey.consumer").error("once")
    assert huey.handlers == []
    assert [got["message"] for got in lines.all] == ["once"]
    assert capsys.readouterr().err == ""


def test_the_handlers_of_uvicorn_are_taken_over(lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(uvicorn.config.LOGGING_CONFIG)
    take_over("uvicorn")
    logging.getLogger("uvicorn.error").info("started")
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:1", "GET", "/healthz", "1.1", 200)
    assert [got["message"] for got in lines.all] == ["started", '127.0.0.1:1 - "GET /healthz HTTP/1.1" 200']
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_setup_again_replaces_the_stream_and_leaves_other_sinks(lines: Lines) -> None:
    seen: list[str] = []
    other = logger.add(lambda message: seen.append(message.record["message"]), level="INFO")
    setup(format="json", stream=(second := Lines()))
    log.info("x")
    logging.getLogger("some").warning("y")
    logger.remove(other)
    assert lines.all == []
    assert [got["message"] for got in second.all] == seen == ["x", "y"]


def test_threads_do_not_mix_their_lines(lines: Lines) -> None:
    def work(number: int) -> Callable[[], None]:
        return lambda: [log.info("x", number=number, pad="p" * 1000) for _ in range(50)] and None

    threads = [threading.Thread(target=work(number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines.all) == 200


def test_logurus_own_logger_is_safe_as_well(lines: Lines) -> None:
    register_secret("hunter2222")
    logger.info("plain", value="hunter2222")
    assert lines.last["value"] == "[redacted]"
