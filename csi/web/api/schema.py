"""JSON Schema in few words: what an answer looks like, for OpenAPI and for the tests that hold us to it."""

from typing import Any

Schema = dict[str, Any]

_TYPES: dict[type, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
}
STAMP: Schema = {"type": "string", "format": "date-time"}


def of(kind: type | Schema) -> Schema:
    return kind if isinstance(kind, dict) else _TYPES[kind]


def shape(**fields: type | Schema) -> Schema:
    """An object that has all of these; answers may grow, so more is allowed."""
    properties = {name: of(kind) for name, kind in fields.items()}
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def maybe(kind: type | Schema) -> Schema:
    """It, or null."""
    return {"anyOf": [of(kind), {"type": "null"}]}


def listed(kind: type | Schema) -> Schema:
    return {"type": "array", "items": of(kind)}


def word(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def named(name: str) -> Schema:
    """One of `components.schemas`."""
    return {"$ref": f"#/components/schemas/{name}"}
