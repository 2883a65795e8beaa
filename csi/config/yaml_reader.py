"""Read YAML with the line and column of every key and value. Tags, merge keys, repeated keys and bombs are refused.

By hand, over PyYAML's nodes: its constructors drop the positions, follow tags and keep the last of two equal keys.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.reader import Reader

MAX_DEPTH = 20
MAX_ALIASES = 100
MAX_VALUES = 200_000
"""Values after aliases are followed: enough for 20,000 watches, too few for an alias bomb ("billion laughs")."""

KeyPath = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast
_RESOLVER: Any = yaml.resolver.Resolver()
_SCALARS = yaml.constructor.SafeConstructor()
_QUOTED = ("'", '"', "|", ">")
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, order=True)
class FilePosition:
    """Line and column in the file, counted from 1 as editors do."""

    line: int
    column: int


@dataclass(frozen=True)
class ConfigProblem:
    """One sentence about one place: a position in the file, or the name of an environment variable."""

    text: str
    where: FilePosition | str | None = None
    path: KeyPath = ()


@dataclass
class YamlDocument:
    """The file as plain data, the position of each key and value, and the problems found so far."""

    data: dict[str, Any] = field(default_factory=dict)
    keys: dict[KeyPath, FilePosition] = field(default_factory=dict)
    values: dict[KeyPath, FilePosition] = field(default_factory=dict)
    plain: set[KeyPath] = field(default_factory=set)
    """Values that are not in quotes: YAML decides their type."""
    problems: list[ConfigProblem] = field(default_factory=list)

    def nearest(self, path: KeyPath) -> FilePosition | None:
        """The position of the block that a missing key belongs to."""
        while path and path not in self.values:
            path = path[:-1]
        return self.keys.get(path) or self.values.get(path)


def parse_yaml(text: str, *, example: str = "config/config.example.yaml", may_be_empty: bool = False) -> YamlDocument:
    """Never raises: a text that cannot be read gives an empty document with its problems."""
    try:
        if problems := list(_refusals(text)):
            return YamlDocument(problems=problems)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        begun = f" (begun in line {error.context_mark.line + 1})" if error.context_mark else ""
        reason = f"{error.context}{begun}, {error.problem}" if error.context else str(error.problem)
        if "cannot start any token" in reason:
            reason += " (indent with spaces, not tabs; quote text that begins with @ or `)"
        mark = error.problem_mark or error.context_mark
        where = FilePosition(mark.line + 1, mark.column + 1) if mark else None
        return YamlDocument(problems=[ConfigProblem(f"not valid YAML: {reason}", where)])
    except yaml.YAMLError:
        return YamlDocument(problems=[ConfigProblem("not valid YAML")])
    if root is None:
        empty = [] if may_be_empty else [ConfigProblem(f"the file is empty; start from {example}")]
        return YamlDocument(problems=empty)
    if not isinstance(root, yaml.MappingNode):
        expected = f"expected keys and values at the top, as in {example}"
        return YamlDocument(problems=[ConfigProblem(expected, _position(root))])
    document = YamlDocument()
    try:
        document.data = _value(document, root, ())
    except _TooBigError:
        reason = f"more than {MAX_VALUES:,} values, or an alias inside its own anchor; write the values out"
        document.data, document.problems = {}, [ConfigProblem(reason, _position(root))]
    return document


def retype(text: str) -> Any:
    """The value that YAML gives this text without quotes: `5` a number, `yes` true, an empty text None."""
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return _scalar(yaml.ScalarNode(tag, text))


def dotted(path: KeyPath) -> str:
    """`sources.youtube_playlist.playlists[0].id`; control characters are escaped."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_printable(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def is_clean(text: str) -> bool:
    """No control characters except tab and newline, and no character that UTF-8 cannot encode."""
    return _ODD.search(text) is None


def _refusals(text: str) -> Iterator[ConfigProblem]:
    """What is refused before nodes are built. Reading events takes no recursion, so deep nesting is harmless here."""
    if odd := Reader.NON_PRINTABLE.search(text):
        before = text[: odd.start()]
        position = FilePosition(before.count("\n") + 1, odd.start() - before.rfind("\n"))
        yield ConfigProblem(f"not YAML: character U+{ord(odd[0]):04X} is not allowed", position)
        return
    depth = aliases = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if tag := getattr(event, "tag", None):
            name = _printable(tag.replace("tag:yaml.org,2002:", "!!"))
            yield ConfigProblem(f"the tag {name} is not allowed; write the plain value", _position(event))
        if depth > MAX_DEPTH:
            reason = f"nested deeper than {MAX_DEPTH} levels"
        elif aliases > MAX_ALIASES:
            reason = f"more than {MAX_ALIASES} aliases (*name)"
        elif documents > 1:
            reason = "a second document begins here; the file holds one, so remove the line ---"
        else:
            continue
        yield ConfigProblem(reason, _position(event))
        return


class _TooBigError(Exception):
    """With its aliases followed, the file has too many values."""


def _value(document: YamlDocument, node: yaml.Node, path: KeyPath) -> Any:
    if len(document.values) >= MAX_VALUES or len(path) > MAX_DEPTH:
        raise _TooBigError
    document.values[path] = _position(node)
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            inner = (*path, key_node.value) if isinstance(key_node, yaml.ScalarNode) else path
            if reason := _key_problem(document, key_node, inner):
                document.problems.append(ConfigProblem(reason, _position(key_node), inner))
            else:
                document.keys[inner] = _position(key_node)
                result[key_node.value] = _value(document, value_node, inner)
        return result
    if not isinstance(node, yaml.ScalarNode):
        return [_value(document, item, (*path, index)) for index, item in enumerate(node.value)]
    if not is_clean(node.value):
        document.problems.append(ConfigProblem("contains a control character", _position(node), path))
        return None
    if node.style not in _QUOTED:
        document.plain.add(path)
    return _scalar(node)


def _key_problem(document: YamlDocument, node: yaml.Node, path: KeyPath) -> str | None:
    if not isinstance(node, yaml.ScalarNode):
        return "a key is a word, not a list or a block; text that holds { or [ must be in quotes"
    if node.tag.endswith(":merge"):
        return "merge keys (<<) are not supported; write the keys out"
    if path in document.keys:
        return f"written twice; the first is in line {document.keys[path].line}"
    return None if is_clean(node.value) else "a key is a word without control characters"


def _scalar(node: yaml.ScalarNode) -> Any:
    """A number, true, false or None. All other values, also dates and numbers beyond 64 bits, stay text."""
    try:
        match node.tag.rpartition(":")[2]:
            case "null":
                return None
            case "bool":
                return _SCALARS.construct_yaml_bool(node)
            case "int":
                number = _SCALARS.construct_yaml_int(node)
                return number if abs(number) < 2**63 else node.value
            case "float":
                return _SCALARS.construct_yaml_float(node)
    except (ValueError, OverflowError):
        pass
    return node.value


def _position(item: Any) -> FilePosition:
    return FilePosition(item.start_mark.line + 1, item.start_mark.column + 1)


def _printable(text: str) -> str:
    short = text if len(text) <= 60 else f"{text[:60]}…"
    return short if short.isprintable() and short else ascii(short)
