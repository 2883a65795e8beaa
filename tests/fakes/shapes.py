"""The shape of what `--json` prints, as docs/cli.md has it: keys at every level, no values.

`python -m tests.fakes.shapes` writes it anew.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from csi.store.catalog import channels
from ops import docs_cli
from tests.rigs.operator import CHANNEL, DEAD_JOB, DEAD_LETTER, OLD_IDS, SUMMARISED, VIDEO, filled_operator_rig

OTHER_CHANNEL = "UC0000000000000000000008"

COMMANDS = [
    "adapters list",
    "adapters show feed",
    "adapters test feed",
    "archive list",
    "audit",
    f"audit list --video {SUMMARISED}",
    f"processing audit --video {SUMMARISED}",
    "channels list",
    f"channels show {CHANNEL}",
    f"channels trend {CHANNEL}",
    f"channels compare {CHANNEL} {OTHER_CHANNEL}",
    "compare -",
    "config check",
    "config show",
    "db status",
    "destinations list",
    "destinations show default",
    "destinations test default",
    "delivery status",
    "delivery test",
    "dlq list",
    "dlq list --group-by error",
    "dlq show 1",
    "doctor --offline",
    "events list",
    "events show 1",
    "events tail -n 1 --for 0s",
    "health",
    "jobs dead",
    "jobs list",
    f"jobs show {DEAD_JOB[:8]}",
    "inbound list",
    "inbound messages",
    "notify mutes",
    "notify status",
    "problems list",
    "processing dlq list",
    f"processing dlq show {DEAD_LETTER}",
    "processing list --status summarized",
    "processing notifications list",
    f"processing show {SUMMARISED}",
    "processing status",
    "quota",
    "receiver doctor",
    "runs list",
    "runs show",
    "slo",
    "sources list",
    "sources show 1",
    "status",
    "tasks dlq",
    "tasks list",
    "tasks show poll",
    "tasks stats",
    "trace delivered01",
    "version",
    "videos hot",
    f"videos list {CHANNEL}",
    "videos movers",
    f"videos show {VIDEO}",
]
"""Every command that only reads, and can print JSON."""

OPEN = {"config show": "as the configuration file"}
"""Output whose keys are described elsewhere."""

ELSEWHERE = {"configuration_snapshot"}
"""Keys whose values are described elsewhere."""

WIDTH = 110


def text_of(home: Path) -> str:
    with filled_operator_rig(home) as operator:
        channels.add(OTHER_CHANNEL, "Somebody else", 5, operator.now)
        return "\n\n".join(_entry(command, _ask(operator, command)) for command in COMMANDS)


def _ask(operator: Any, command: str) -> Any:
    # The ids of the rig cannot exist, which `config check` refuses.
    file = ["--config", "tests/data/config/real_ids.yaml"] if command == "config check" else []
    result = operator.call(*command.split(), *file, "--json", text=OLD_IDS)
    assert result.exit_code in (0, 1), f"csi {command}: {result.output}{result.exception!r}"
    return json.loads(result.stdout, object_hook=_without_inner)


def _without_inner(found: dict[str, Any]) -> dict[str, Any]:
    return found | dict.fromkeys(ELSEWHERE & found.keys())


def _entry(command: str, value: Any) -> str:
    shape = f"({OPEN[command]})" if command in OPEN else skeleton(value)
    return f"`csi {command} --json`\n\n```\n{shape}\n```"


def skeleton(value: Any, indent: int = 0) -> str:
    """`{at, worker: {alive}, sources: [{source}]}`, broken into lines where it is long."""
    flat = _flat(value)
    if len(flat) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    if isinstance(value, list):
        return f"[{skeleton(value[0], indent + 1)}]"
    pad = " " * (indent + 1)
    lines, line = [], ""
    for key, inner in value.items():
        part = key if not _nested(inner) else f"{key}: {skeleton(inner, indent + len(key) + 3)}"
        if line and (len(pad) + len(line) + len(part) + 2 > WIDTH or "\n" in part):
            lines.append(line)
            line = ""
        line = f"{line}, {part}" if line else part
    return "{" + f",\n{pad}".join([*lines, line]) + "}"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{key}: {_flat(inner)}" if _nested(inner) else key for key, inner in value.items()) + "}"
        )
    return f"[{_flat(value[0])}]" if isinstance(value, list) and value and _nested(value[0]) else "[]"


def _nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        generated = {"shapes": text_of(Path(home))}
    docs_cli.JSON_PAGE.write_text(docs_cli.rewritten(docs_cli.JSON_PAGE.read_text(), generated))


if __name__ == "__main__":
    main()
