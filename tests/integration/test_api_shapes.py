"""JSON shapes of release 1.0.0: every key that the admin API and `--json` had is still there, with its type."""

import gc
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from csi.api_models import ApiModel, TimelineJson
from csi.store import db
from csi.web import openapi
from csi.web.app import create_app
from tests.rigs.operator import CHANNEL, DEAD_JOB, OPEN_JOB, VIDEO, OperatorRig, filled_operator_rig

SHAPES = Path(__file__).parents[1] / "data" / "api_shapes_1_0_0.json"
TOKEN = "canary-admin-token-0123"
DRY_RUN = {"dry_run": True}
READS = [
    "/status", "/waiting", "/slo", "/queue", "/quota", "/audit", "/sources", "/sources/1", "/events", "/events/1",
    "/trace?q=dead0000001", "/dlq", "/dlq?group_by=error", "/dlq/1", "/delivery", "/doctor", "/notify", "/channels",
    f"/channels/{CHANNEL}", f"/channels/{CHANNEL}/trend", f"/videos?channel={CHANNEL}", "/videos/hot",
    f"/videos/{VIDEO}", "/jobs", f"/jobs/{DEAD_JOB}",
]  # fmt: skip
ACTS: list[tuple[str, dict[str, Any]]] = [
    ("/prune", DRY_RUN),
    ("/sources", {"what": "UC" + "b" * 22, **DRY_RUN}),
    ("/sources/import?dry_run=true", {}),
    ("/sources/1/pause", DRY_RUN),
    ("/sources/1/resume", DRY_RUN),
    ("/sources/1/reset", {"emit": "none", **DRY_RUN}),
    ("/sources/2/poll", {}),
    ("/adapters/youtube_playlist/poll", {}),
    ("/delivery/default/pause", {}),
    ("/delivery/default/resume", {}),
    ("/delivery/default/test", {}),
    ("/dlq/replay", {"all": True, **DRY_RUN}),
    ("/dlq/replay", {"all": True}),
    ("/dlq/discard", {"ids": [1], **DRY_RUN}),
    ("/dlq/discard", {"ids": [1, 999], "confirm": True}),
    ("/dlq/prune", {"older_than": "90d", **DRY_RUN}),
    (f"/jobs/{DEAD_JOB}/retry", {}),
    (f"/channels/{CHANNEL}/pause", {}),
    (f"/channels/{CHANNEL}/resume", {}),
    (f"/channels/{CHANNEL}/priority", {"priority": 7}),
    (f"/channels/{CHANNEL}/backfill", {}),
    ("/jobs", {"type": "REFRESH_HOT_VIDEOS"}),
    (f"/jobs/{OPEN_JOB}/cancel", {}),
]
COMMANDS = [
    "status", "slo", "delivery status", "dlq list", "dlq list --group-by error", "dlq show 1", "events list",
    "events show 1", "trace dead0000001", "sources list", "quota", "notify status", "prune --dry-run",
    "doctor --offline", "channels list", f"channels show {CHANNEL}", f"channels trend {CHANNEL}",
    f"videos list {CHANNEL}", f"videos show {VIDEO}", "videos hot", "jobs list", f"jobs show {DEAD_JOB}", "jobs dead",
    "tasks list", "tasks stats", "health", "dlq replay --all --dry-run", "dlq discard --id 1 --dry-run",
    f"sources add UC{'b' * 22} --dry-run",
]  # fmt: skip


def shape(value: Any) -> Any:
    """The keys of an object and the types of its values; one shape for all entries of a list."""
    if isinstance(value, dict):
        return {key: shape(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        merged: Any = None
        for entry in value:
            merged = merge(merged, shape(entry))
        return [] if merged is None else [merged]
    names = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
    return names[type(value)]


def merge(one: Any, other: Any) -> Any:
    if one in (None, "null") or other == "null":
        return one if other == "null" and one is not None else other
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: merge(one.get(key), other.get(key, "null")) for key in sorted({*one, *other})}
    if isinstance(one, list) and isinstance(other, list):
        return [merge(one[0], other[0])] if one and other else one or other
    return one


def differences(old: Any, new: Any, at: str) -> list[str]:
    if "null" in (old, new):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{at}.{key} is missing" for key in old if key not in new]
        return missing + [text for key in old if key in new for text in differences(old[key], new[key], f"{at}.{key}")]
    if isinstance(old, list) and isinstance(new, list):
        return differences(old[0], new[0], f"{at}[]") if old and new else []
    return [] if old == new else [f"{at} was {old} and is {new}"]


async def shapes(built: OperatorRig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for command in COMMANDS:
        result = built.call(*command.split(), "--json")
        assert result.exit_code in (0, 1), f"{command}: {result.output}"
        assert result.stdout, f"{command}: {result.stderr}"
        found[f"csi {command}"] = shape(json.loads(result.stdout))
    secrets = built.rt.settings.secrets
    changed = secrets.model_validate(secrets.model_dump() | {"admin_token": TOKEN})
    built.rt.settings = built.rt.settings.model_copy(update={"secrets": changed})
    transport = httpx.ASGITransport(app=create_app(lambda: built.rt))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/admin", headers=headers) as client:
        for path in READS:
            answer = await client.get(path)
            assert answer.status_code == 200, f"{path}: {answer.text}"
            found[f"GET {path}"] = shape(answer.json())
        for path, body in ACTS:
            sent = {"content": f"UC{'c' * 22}\n?"} if "import" in path else {"json": body}
            answer = await client.post(path, **sent)
            assert answer.status_code in (200, 201), f"{path}: {answer.text}"
            found[f"POST {path} {json.dumps(body)}"] = shape(answer.json())
        answer = await client.get("/audit")
        found["GET /audit after acts"] = shape(answer.json())
    return found


@pytest.mark.asyncio
async def test_every_key_of_1_0_0_is_still_there_with_its_type(tmp_path: Path) -> None:
    with filled_operator_rig(tmp_path) as built, db.connection():
        found = await shapes(built)
    old = json.loads(SHAPES.read_text())
    assert set(old) <= set(found)
    assert [text for name in old for text in differences(old[name], found[name], name)] == []


def test_every_deprecated_key_is_in_the_table_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text().partition("## Renamed keys")[2]
    documented = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, re.MULTILINE))
    properties = [one.get("properties", {}) for one in openapi.document()["components"]["schemas"].values()]
    deprecated = {
        (key, re.findall(r"`(\w+)`", schema["description"])[0])
        for fields in properties
        for key, schema in fields.items()
        if schema.get("deprecated")
    }
    assert deprecated == documented


@pytest.mark.parametrize("text", ["\ud800 half a pair", "Üben ✓"])
def test_text_from_outside_is_never_an_error(text: str) -> None:
    step = {"at": 0.5, "what": "seen", "text": text, "details": {"answer": text}}
    timeline = TimelineJson.of(
        key="k", event_id=None, state="dead", reason=text, source=None, event_type=None, title=text, url=text,
        watch=None, destinations=[], steps=[step],
    )  # fmt: skip
    json.dumps(timeline.model_dump()).encode()
    assert timeline.steps[0].at == "1970-01-01T00:00:00.500Z"


def test_no_two_objects_share_a_name_in_the_document() -> None:
    """`EventJson` is called Event there, so no other model may have that name."""
    models = [one for one in gc.get_objects() if isinstance(one, type) and issubclass(one, ApiModel)]
    names = Counter(one.__name__.removesuffix("Json") for one in models if one.__module__.startswith("csi."))
    assert [name for name, count in names.items() if count > 1] == []
