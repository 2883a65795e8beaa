"""Property test: one log line per record, whatever its content."""

import io
import json
import logging
import logging.config
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csi.logs import log, redaction, setup, sink
from csi.logs.intercept import InterceptHandler


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
def text() -> io.StringIO:
    stream = io.StringIO()
    setup(format="text", level="DEBUG", stream=stream)
    return stream


ANYTHING = st.text(max_size=60) | st.sampled_from(["\n", "\r\n", "\x1b[2J", "\u2028", "\x85", "\ud800", "{x}", "{"])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
