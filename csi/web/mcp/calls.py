"""Run one call of a tool: check its arguments, preview or confirm a change, and record it in the audit log."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from csi.api_models import ApiModel
from csi.errors import CsiError
from csi.ingester.text import clean
from csi.logs import log
from csi.web import health
from csi.web.mcp import audit_records, results, tools
from csi.web.mcp.audit_records import Caller
from csi.web.mcp.confirmations import Confirmations
from csi.web.mcp.results import ToolResult
from csi.web.mcp.tools import ToolDefinition
from csi.web.operation_definition import MAX_LIMIT, refusal_of
from csi.web.responses import HttpProblem
from csi.web.shared_state import Sidecar

ROWS = 50


def _exact_watch(arguments: Mapping[str, Any], preview: Mapping[str, Any]) -> dict[str, Any]:
    """The channel, playlist or feed that was found, so that it is not looked up a second time."""
    name = arguments.get("name") or preview["name"]
    return {**arguments, "what": preview["ref"], **({"name": name} if name else {})}


def _exact_dead_letters(arguments: Mapping[str, Any], preview: Mapping[str, Any]) -> dict[str, Any]:
    """The dead letters that were listed, not those that would fit the conditions later."""
    return {"ids": [one["id"] for one in preview["dead_letters"]]}


EXACT: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]] = {
    "add_source": _exact_watch,
    "replay_dead_letters": _exact_dead_letters,
}
"""The arguments that name the exact target of a preview. Other tools name it by its id already."""


class ToolCalls:
    """The tools of one sidecar, or of one `csi mcp`."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._confirmations = Confirmations(time.monotonic)

    async def offered(self, caller: Caller) -> list[ToolDefinition]:
        return tools.offered(await self._sidecar.settings(), may_change=caller.may_change)

    async def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> ToolResult:
        """Never raises: an error is a result that says what is wrong. Every call is recorded in the audit log."""
        tool, started, number = tools.definitions().get(name), time.monotonic(), None
        try:
            # The number of the record; None where a read could not be recorded: it is answered all the same
            if tool is None:
                action = f"CALL {clean(name, 60)}"
            else:
                path, _, _ = tool.split_arguments(arguments)
                action = f"{tool.operation.method} /admin{tool.operation.path.format(**path)}"
            must_record = tool is not None and tool.is_change
            number = await audit_records.begin(self._sidecar, caller, action, must_record=must_record)
            result = await self._checked(tool, arguments, caller)
        except CsiError as error:
            refusal = refusal_of(error) or HttpProblem(503, health.unreadable(error))
            result = ToolResult(refusal.status, error=str(refusal))
            if refusal.status == 503:
                self._sidecar.warn("request failed: configuration or database not readable", error)
        except Exception:  # noqa: BLE001 the edge of the process: the agent gets a sentence, the log the cause
            log.exception("mcp call failed", tool=clean(name, 60))
            result = ToolResult(500, error="this call failed; the log of CSI says why")
        words = json.dumps({key: value for key, value in arguments.items() if key != "confirm"}, default=str)
        detail = f"preview {words}" if result.confirm else words
        await audit_records.finish(self._sidecar, number, result.status, detail)
        seconds = round(time.monotonic() - started, 3)
        log.info("mcp call", tool=clean(name, 60), client=caller.client, status=result.status, seconds=seconds)
        return result

    # ── audit ───────────────────────────────────────────────────────────────────────────────────────────

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────

    async def _checked(self, tool: ToolDefinition | None, given: Mapping[str, Any], caller: Caller) -> ToolResult:
        if tool is None or tool not in tools.offered(await self._sidecar.settings(), may_change=True):
            names = ", ".join(one.name for one in await self.offered(caller))
            raise HttpProblem(404, f"there is no such tool; the tools are {names}")
        if tool.is_change and not caller.may_change:
            raise HttpProblem(403, caller.refusal)
        refuse_text(given)
        if not tool.is_change:
            return await self._read(tool, given)
        arguments = {name: value for name, value in given.items() if name not in ("confirm", "dry_run")}
        confirm = given.get("confirm")
        if confirm in (None, ""):
            return await self._preview(tool, arguments)
        exact = self._confirmations.take(str(confirm), tool.name, arguments)
        data, notes = results.bounded(await self._run(tool, exact))
        return ToolResult(200, data, notes=notes)

    async def _read(self, tool: ToolDefinition, given: Mapping[str, Any]) -> ToolResult:
        """A page is made shorter until it fits, however many rows were asked for; `next` in it leads to the rest."""
        query = tool.operation.query
        if query is None or "limit" not in query.model_fields:
            data, notes = results.bounded(await self._run(tool, given))
            return ToolResult(200, data, notes=notes)
        field = query.model_fields["limit"]
        most = next((rule.le for rule in field.metadata if hasattr(rule, "le")), MAX_LIMIT)
        wanted, notes = given.get("limit") or field.default or ROWS, []
        text = str(wanted)
        limit = most if (text.isascii() and text.isdigit()) and int(wanted) > most else wanted
        data = await self._run(tool, {**given, "limit": limit})
        while results.is_too_large(data) and int(limit) > 1:
            limit = int(limit) // 2
            data = await self._run(tool, {**given, "limit": limit})
        if limit != wanted:
            notes.append(
                f"This page has at most {limit} rows. `next` in it leads to the next page; null: the last one."
            )
        data, cut = results.bounded(data)
        return ToolResult(200, data, notes=notes + cut)

    async def _preview(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolResult:
        found = await self._run(tool, {**arguments, "dry_run": True})
        exact = EXACT[tool.name](arguments, found) if tool.name in EXACT else dict(arguments)
        data, notes = results.bounded(found)
        if tool.name == "replay_dead_letters":
            data, ids = {**data, "ids": exact["ids"]}, exact["ids"]
            if not ids:
                return ToolResult(200, data, notes=["No open dead letter fits: there is nothing to confirm."])
            if len(ids) < found["chosen"]:
                notes.append(f"The confirmation is for the {len(ids)} dead letters in `ids`; repeat for the rest.")
        token = self._confirmations.add(tool.name, dict(arguments), exact)
        repeat = f"call {tool.name} with the same arguments and confirm={token} within 10 minutes"
        notes.insert(0, f"Preview: nothing was changed. To do exactly this, {repeat}.")
        return ToolResult(200, data, confirm=token, notes=notes)

    async def _run(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> dict[str, Any]:
        operation = tool.operation
        inputs = operation.checked_inputs(*tool.split_arguments(arguments))
        execute = self._sidecar.run if tool.is_change or operation.is_slow else self._sidecar.read
        found = await execute(lambda rt: operation.run(rt, **inputs))
        if isinstance(found, Response):
            found = json.loads(bytes(found.body))
        elif isinstance(found, ApiModel):
            found = found.model_dump(context={"without_old_names": True})
        return dict(results.cleaned(found))


def refuse_text(given: Mapping[str, Any]) -> None:
    """HttpProblem for what no database can store: NUL, halves of surrogate pairs, numbers that are none."""
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise HttpProblem(400, "the arguments are not valid JSON text") from error
    if "\\u0000" in text:
        raise HttpProblem(400, "text must not contain NUL")
