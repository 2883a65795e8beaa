"""The tools of the MCP server: which they are, how large their results get, and what a confirmation is valid for."""

import json

import pytest

from csi.config.settings import Settings, WebSettings
from csi.web.mcp import confirmations, results, tools
from csi.web.mcp.confirmations import Confirmations
from csi.web.responses import HttpProblem


def test_every_tool_is_an_operation_and_its_schema_has_its_parameters() -> None:
    for tool in tools.definitions().values():
        schema = tool.input_schema()
        assert tool.description.startswith(tool.operation.summary)
        assert ("confirm" in schema["properties"]) == tool.is_change
        assert "dry_run" not in schema["properties"]
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(kind.get("description") or name == "id" for name, kind in schema["properties"].items())


def test_tools_of_processing_and_changes_are_offered_where_they_work() -> None:
    def names(settings: Settings, *, may_change: bool) -> set[str]:
        return {tool.name for tool in tools.offered(settings, may_change=may_change)}

    plain, connected = Settings(), Settings(web=WebSettings(processing_url="http://127.0.0.1:8090"))
    assert names(connected, may_change=False) - names(plain, may_change=False) == {
        "list_processed_videos", "get_processed_video",
    }  # fmt: skip
    changes = names(plain, may_change=True) - names(plain, may_change=False)
    assert changes == {"add_source", "pause_source", "resume_source", "poll_source", "replay_dead_letters"}


def test_a_confirmation_is_for_one_target_once_and_not_for_ever() -> None:
    now = 0.0
    kept = Confirmations(lambda: now)
    token = kept.add("pause_source", {"id": "1"}, {"id": "1"})
    for tool, arguments in (("resume_source", {"id": "1"}), ("pause_source", {"id": "2"})):
        with pytest.raises(HttpProblem, match="another target"):
            kept.take(token, tool, arguments)
    assert kept.take(token, "pause_source", {"id": "1"}) == {"id": "1"}
    with pytest.raises(HttpProblem, match="was used"):
        kept.take(token, "pause_source", {"id": "1"})
    token = kept.add("pause_source", {"id": "1"}, {"id": "1"})
    now += confirmations.SECONDS
    with pytest.raises(HttpProblem, match="10 minutes"):
        kept.take(token, "pause_source", {"id": "1"})


def test_an_agent_that_previews_without_end_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmations, "MOST", 3)
    kept = Confirmations(lambda: 0.0)
    tokens = [kept.add("pause_source", {"id": str(number)}, {}) for number in range(5)]
    with pytest.raises(HttpProblem):
        kept.take(tokens[1], "pause_source", {"id": "1"})
    assert kept.take(tokens[2], "pause_source", {"id": "2"}) == {}


@pytest.mark.parametrize(
    "data",
    [
        {"text": "x" * 500_000},
        {"rows": [{"text": "ü" * 900} for _ in range(5_000)], "next": 7},
        {"nested": {"rows": ["y" * 900] * 5_000}},
        {"a": list(range(200_000)), "b": ["z"] * 200_000},
    ],
)
def test_a_result_is_never_larger_than_its_limit(data: dict[str, object]) -> None:
    shown, notes = results.bounded(data)
    assert len(results.encoded(shown)) <= results.MAX_CHARS
    assert notes


def test_halves_of_surrogate_pairs_do_not_break_the_json() -> None:
    shown = results.cleaned({"a\ud800": ["b\udfff", {"c": ("d",)}], "n": 1.5, "none": None})
    assert json.loads(results.encoded(shown).encode()) == {"a?": ["b?", {"c": ["d"]}], "n": 1.5, "none": None}
