"""Which operations of the admin API are tools, and how each is described to an agent. Pure.

A tool's name, description and parameters are those of its operation (csi.web.api): nothing is described a second time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from csi.config.settings import Settings
from csi.web import api
from csi.web.operation_definition import Operation

READS = (
    "listProblems", "getStatus", "listEvents", "getEvent", "listSources", "getSource", "getQuota", "listDeadLetters",
    "getDeadLetter", "listChannels", "showChannel", "showTrend", "listVideos", "listHotVideos",
)  # fmt: skip
PROCESSING_READS = ("listProcessedVideos", "getProcessedVideo")
CHANGES = ("addSource", "pauseSource", "resumeSource", "pollSource", "replayDeadLetters")

CONFIRM = {
    "type": "string",
    "description": "Leave it out for a preview that changes nothing. To do what the preview showed, pass the text that "
    "it returned as `confirm`, with the same arguments.",
}
TWO_STEPS = "Needs two calls: the first is a preview, the second repeats it with `confirm`."


@dataclass(frozen=True)
class ToolDefinition:
    """One operation as a tool."""

    name: str
    operation: Operation

    @property
    def is_change(self) -> bool:
        return self.operation.method != "GET"

    @property
    def description(self) -> str:
        return f"{self.operation.summary}. {TWO_STEPS}" if self.is_change else f"{self.operation.summary}."

    def input_schema(self) -> dict[str, Any]:
        one, properties, required = self.operation, dict[str, Any](), list[str]()
        shared = dict[str, Any]()
        for name in one.path_names:
            properties[name] = {"type": "string"}
            required.append(name)
        for model in filter(None, (one.query, one.body)):
            schema = model.model_json_schema()
            for name, kind in schema["properties"].items():
                # Without what an agent does not need: titles, and null as the value of what can be left out.
                kept = {key: value for key, value in kind.items() if key != "title"}
                kinds = [one for one in kept.get("anyOf", []) if one != {"type": "null"}]
                if len(kinds) == 1 and kept.get("default", ...) is None:
                    kept = {**kinds[0], "description": kept.get("description", "")}
                if name != "dry_run":
                    properties[name] = kept
            required += schema.get("required", [])
            shared |= schema.get("$defs", {})
        if self.is_change:
            properties["confirm"] = CONFIRM
        made = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return made | ({"$defs": shared} if shared else {})

    def split_arguments(self, given: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        """Path, query and body of the request that these arguments stand for. Empty ones count as absent."""
        left = {name: value for name, value in given.items() if value is not None and value != ""}
        path = {name: str(left.pop(name, "")) for name in self.operation.path_names}
        if self.operation.method == "GET":
            return path, left, {}
        return path, {}, left


@cache
def definitions() -> dict[str, ToolDefinition]:
    """Every tool by its name, in the order in which agents see them."""
    found = {one.name: one for one in api.operations()}
    names = {name: _tool_name(name) for name in (*READS, *PROCESSING_READS, *CHANGES)}
    return {tool: ToolDefinition(tool, found[name]) for name, tool in names.items()}


def offered(settings: Settings, *, may_change: bool) -> list[ToolDefinition]:
    """The tools that this installation has for a caller."""
    without = set() if settings.web.processing_url else {_tool_name(name) for name in PROCESSING_READS}
    return [one for one in definitions().values() if one.name not in without and (may_change or not one.is_change)]


def _tool_name(operation: str) -> str:
    """`listDeadLetters` as tools are named: `list_dead_letters`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", operation).lower()
