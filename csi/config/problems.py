"""Turn pydantic's errors into problems of the configuration file: where, what, and what to do."""

import difflib
import typing
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from csi.config.variables import ConfigDraft
from csi.config.yaml_reader import ConfigProblem, FilePosition, KeyPath, dotted

MAX_PROBLEMS = 100

_EXPECTED = {
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "int_parsing": "expected a whole number",
    "int_parsing_size": "expected a smaller number",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "finite_number": "expected a number that is finite",
    "string_type": "expected text; write it in quotes",
    "path_type": "expected a path",
    "model_type": "expected a block of keys and values",
    "model_attributes_type": "expected a block of keys and values",
    "dict_type": "expected a block of keys and values",
    "tuple_type": "expected a list (lines that begin with -)",
    "list_type": "expected a list (lines that begin with -)",
    "literal_error": "expected {expected}",
    "string_pattern_mismatch": "expected text of the form {pattern}",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "string_too_long": "expected at most {max_length} characters",
    "string_too_short": "expected at least {min_length} characters",
    "value_error": "{error}",
}
_NEVER_SHOWN = ("secret", "token", "password", "key", "_env", "auth", "cookie")


def explain(error: ValidationError, draft: ConfigDraft, model: type[BaseModel]) -> list[ConfigProblem]:
    """One problem per key: the errors of a union's members for one key are joined by `or`."""
    problems: dict[KeyPath, ConfigProblem] = {}
    for item in error.errors(include_url=False):
        problem = _problem(item, draft, model)
        earlier = problems.setdefault(problem.path, problem)
        if problem.text not in earlier.text:
            problems[problem.path] = replace(earlier, text=f"{earlier.text} or {problem.text}")
    return list(problems.values())


def report(problems: list[ConfigProblem], file: Path | None) -> str:
    """One line per problem: the file from top to bottom, then the environment."""
    lines: dict[str, None] = {}
    for problem in sorted(problems, key=_order):
        place = problem.where
        where = f"{file}:{place.line}:{place.column}" if isinstance(place, FilePosition) else place or str(file)
        lines[": ".join(filter(None, (where, dotted(problem.path), problem.text.replace("\n", " "))))] = None
    rest = len(lines) - MAX_PROBLEMS
    return "\n".join([*list(lines)[:MAX_PROBLEMS], *([f"{file}: and {rest} more problems"] if rest > 0 else [])])


def _order(problem: ConfigProblem) -> tuple[bool, FilePosition]:
    """The file from top to bottom, then the environment."""
    return (False, problem.where) if isinstance(problem.where, FilePosition) else (True, FilePosition(0, 0))


def position_of(draft: ConfigDraft, path: KeyPath) -> Any:
    """The variable that set the key, its position in the file, or that of the block it is missing from."""
    if name := draft.overridden.get(path):
        return f"environment variable {name}"
    return draft.document.values.get(path) or draft.document.nearest(path)


def suggest(word: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word[:100], list(known), n=1)), None)


def unknown_name(kind: str, word: str, known: Iterable[str]) -> str:
    """`unknown key; did you mean …?`, or the list of known names."""
    names = sorted(known)
    if guess := suggest(word, names):
        return f"unknown {kind}; did you mean {guess}?"
    return f"unknown {kind}; known: {', '.join(names)}" if names else f"unknown {kind}; there are none"


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The blocks that a field of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from models_in(inner)


def _problem(item: ErrorDetails, draft: ConfigDraft, model: type[BaseModel]) -> ConfigProblem:
    # The part of pydantic's location that is in the file, and the value there; the rest names members of unions
    path: KeyPath = ()
    value: Any = draft.data
    for part in item["loc"]:
        inside = isinstance(value, dict) and part in value
        if inside or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            path, value = (*path, part), value[part]
    match item["type"]:
        case "missing":
            return ConfigProblem("this key is required", draft.document.nearest(path), (*path, item["loc"][-1]))
        case "extra_forbidden":
            return ConfigProblem(_unknown_key(path, model), draft.document.keys.get(path), path)
        case kind:
            context = item.get("ctx") or {}
            pattern = str(context.get("pattern", "")).removeprefix("^").removesuffix("$")
            template = _EXPECTED.get(kind)
            text = template.format(**{**context, "pattern": pattern}) if template else item["msg"]
            return ConfigProblem(text + _but_was(draft, path, value), position_of(draft, path), path)


def _unknown_key(path: KeyPath, model: type[BaseModel]) -> str:
    block: type[BaseModel] | None = model
    for part in path[:-1]:  # an index of a list and a free name (`route_profiles.x`) are no fields: the block stays
        entry = block.model_fields.get(str(part)) if block else None
        block = next(models_in(entry.annotation), None) if entry else block
    known = block.model_fields if block else {}
    if path[:-1] == ("sources",):
        guess = suggest(str(path[-1]), known)
        return f"unknown source;{f' did you mean {guess}?' if guess else ''} known: {', '.join(sorted(known))}"
    return unknown_name("key", str(path[-1]), known)


def _but_was(draft: ConfigDraft, path: KeyPath, value: Any) -> str:
    """The value, if it is short and cannot be a secret in the wrong place."""
    if name := draft.used.get(path):
        return f" (the value comes from ${{{name}}})"
    if path in draft.overridden or any(word in str(path[-1:]).lower() for word in _NEVER_SHOWN):
        return ""
    if value is None and path in draft.document.values:
        return "; it has no value"
    if isinstance(value, str) and "://" not in value:
        return f", not {value!r}" if len(value) <= 40 else ""
    return f", not {str(value).lower()}" if isinstance(value, bool | int | float) and len(str(value)) <= 40 else ""
