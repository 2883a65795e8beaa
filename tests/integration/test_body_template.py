"""Templates run in a child process: what they render, what they report, and that none of them stops the worker."""

import pytest

from csi import body_template
from csi.body_template import TemplateFailed, fault_of, render
from csi.body_template.sample import SAMPLE_EVENT
from csi.config.destination_profiles import PRESETS
from csi.config.loader import read_config
from csi.errors import ConfigError

CONTEXT = body_template.context_of([SAMPLE_EVENT], instance_id="csi-1", batch_id="batch_1")


@pytest.mark.parametrize("preset", ["slack", "discord"])
def test_the_templates_of_presets_render_json(preset):
    assert fault_of(PRESETS[preset]["template"], is_json=True) is None


def test_text_of_feeds_cannot_mention_everybody_in_slack_or_discord():
    event = SAMPLE_EVENT | {"subject": {"title": 'a "b" <!channel> & @everyone'}}
    context = body_template.context_of([event], instance_id="csi-1", batch_id="batch_1")
    assert "<!channel>" not in render(PRESETS["slack"]["template"], context).encode().decode("unicode_escape")
    assert '"allowed_mentions": {"parse": []}' in render(PRESETS["discord"]["template"], context)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            '{"a":\n {{ event.subject.titel | tojson }}}',
            "line 2: UndefinedError: 'dict object' has no attribute 'titel'",
        ),
        ("{% for x in events %}", "line 1: "),
        ("{{ ''.__class__.__mro__ }}", "line 1: SecurityError"),
        ("{{ 1 / 0 }}", "line 1: ZeroDivisionError"),
        (
            "{% set ns = namespace(x='ab') %}\n{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "line 2: ",
        ),
        ("{% for a in range(9000) %}{{ 'x' * 1000 }}{% endfor %}", "more than 1,000,000 characters"),
        ('{"title": {{ event.subject.title }}}', "the result is not JSON"),
        ("{{ '[' * 100000 }}", "the result is not JSON"),
    ],
)
def test_a_template_that_fails_says_where_and_why(template, words):
    assert words in (fault_of(template, is_json=True) or "")


def test_a_template_that_loops_is_ended_and_the_next_one_renders():
    with pytest.raises(TemplateFailed, match="does it loop"):
        render("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", CONTEXT)
    assert render("{{ event.source }} {{ events | length }}", CONTEXT) == "youtube_channel_rss 1"


def test_the_child_gets_no_secret(monkeypatch):
    monkeypatch.setenv("CSI_UA_SHARED_SECRET", "do-not-pass-on")
    started = []
    original = body_template.subprocess.Popen
    monkeypatch.setattr(
        body_template.subprocess, "Popen", lambda *args, **given: started.append(given) or original(*args, **given)
    )
    monkeypatch.setattr(body_template, "_renderer", body_template._Renderer())
    render("x", CONTEXT)
    assert "do-not-pass-on" not in str(started)


def test_config_check_reports_the_line_of_a_template_that_fails(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "delivery:\n  destinations:\n    there:\n      preset: n8n\n      endpoint: https://x.example/in\n"
        '      template: "{{ event.nothing }}"\n'
    )
    with pytest.raises(ConfigError) as refused:
        read_config(file, env={}, sources={})
    assert f"{file}:6:" in str(refused.value)
    assert "the template fails with a sample event: line 1: UndefinedError" in str(refused.value)
