"""Texts on processing's pages: safe HTML, without known secrets."""

import pytest

from csi import logs
from csi.logs import redaction
from csi.processing.pages import app, reading

SECRET = "canary-openai-key-0123"


@pytest.fixture(autouse=True)
def known_secret(monkeypatch):
    monkeypatch.setattr(redaction.redactor, "forms", ())
    logs.register_secret(SECRET)


def test_a_rendered_summary_and_a_command_show_no_secret():
    shown = [
        reading.render_markdown(f"# A title\n\nthe key {SECRET} <b>"),
        app._templates().from_string("{{ text | commands }}").render(text=f"run `csi {SECRET}`"),
        app._templates().from_string("{{ text }}").render(text=f"the key {SECRET}"),
    ]
    assert [text for text in shown if SECRET in text] == []
    assert "<h1>A title</h1>" in shown[0]
    assert "&lt;b&gt;" in shown[0]
    assert "<code>csi" in shown[1]
