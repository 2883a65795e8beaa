"""YAML read so that every value knows its line: no tags, no merges, no key twice, no bombs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.reader import Reader

MAX_DEPTH = 20
MAX_ALIASES = 100
MAX_VALUES = 200_000
"""Values after aliases are followed: enough for 20,000 watches, too few for a billion laughs."""

KeyPath = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast
_RESOLVER: Any = yaml.resolver.Resolver()
_SCALARS = yaml.constructor.SafeConstructor()
_QUOTED = ("'", '"', "|", ">")
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, order=True)
class FilePosition:
    """A place in the file, counted from 1 as editors do."""

    line: int
    column: int


@dataclass(frozen=True)
class ConfigProblem:
    """One sentence about one place: a spot in the file, or the name of what else is to blame."""

    text: str
    where: FilePosition | str | None = None
    path: KeyPath = ()


@dataclass
class YamlDocument:
    """The file as plain data, where each key and value stands, and what is wrong with it so far."""

    data: dict[str, Any] = field(default_factory=dict)
    keys: dict[KeyPath, FilePosition] = field(default_factory=dict)
    values: dict[KeyPath, FilePosition] = field(default_factory=dict)
    plain: set[KeyPath] = field(default_factory=set)
    problems: list[ConfigProblem] = field(default_factory=list)

    def nearest(self, path: KeyPath) -> FilePosition | None:
        """Where a key that is not there would have been: its block."""
        while path and path not in self.values:
            path = path[:-1]
        return self.keys.get(path) or self.values.get(path)


def parse_yaml(text: str) -> YamlDocument:
    """Never raises: a text that is no configuration gives an empty document and the reason."""
    try:
        if problems := list(_refusals(text)):
            return YamlDocument(problems=problems)
        return _build(yaml.compose(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        return YamlDocument(problems=[_syntax(error)])
    except yaml.YAMLError:
        return YamlDocument(problems=[ConfigProblem("not valid YAML")])


def retype(text: str) -> Any:
    """What YAML would make of this text as a plain scalar: `5` a number, `yes` a switch, `` nothing."""
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return _scalar(yaml.ScalarNode(tag, text))


def dotted(path: KeyPath) -> str:
    """`sources.youtube_playlist.playlists[0].id`; what would disturb a terminal is escaped."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_tame(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def is_clean(text: str) -> bool:
    """No control characters but tab and newline, and nothing that cannot be written as UTF-8."""
    return _ODD.search(text) is None


def _refusals(text: str) -> Iterator[ConfigProblem]:
    """What is refused before anything is built. Reading events is flat: depth cannot hurt here."""
    if odd := Reader.NON_PRINTABLE.search(text):
        yield ConfigProblem(f"not YAML: character U+{ord(odd[0]):04X} is not allowed", _spot_at(text, odd.start()))
        return
    depth = aliases = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if tag := getattr(event, "tag", None):
            yield ConfigProblem(f"the tag {_tag_name(tag)} is not allowed; write the plain value", _spot(event))
        if reason := _too_much(depth, aliases, documents):
            yield ConfigProblem(reason, _spot(event))
            return


def _too_much(depth: int, aliases: int, documents: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if aliases > MAX_ALIASES:
        return f"more than {MAX_ALIASES} aliases (*name)"
    if documents > 1:
        return "a second document begins here; the file holds one, so remove the line ---"
    return None


class _TooBigError(Exception):
    """Following the aliases gives more than anybody would write."""


def _build(root: yaml.Node | None) -> YamlDocument:
    document = YamlDocument()
    if root is None:
        document.problems.append(ConfigProblem("the file is empty; start from config/config.example.yaml"))
    elif not isinstance(root, yaml.MappingNode):
        text = "expected keys and values at the top (csi:, sources:, delivery:)"
        document.problems.append(ConfigProblem(text, _spot(root)))
    else:
        _fill(document, root)
    return document


def _fill(document: YamlDocument, root: yaml.Node) -> None:
    try:
        document.data = _value(document, root, ())
    except _TooBigError:
        text = f"more than {MAX_VALUES:,} values, or an alias inside its own anchor; write the values out"
        document.data, document.problems = {}, [ConfigProblem(text, _spot(root))]


def _value(document: YamlDocument, node: yaml.Node, path: KeyPath) -> Any:
    if len(document.values) >= MAX_VALUES or len(path) > MAX_DEPTH:
        raise _TooBigError
    document.values[path] = _spot(node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(document, node, path)
    if isinstance(node, yaml.ScalarNode):
        return _leaf(document, node, path)
    return [_value(document, item, (*path, index)) for index, item in enumerate(node.value)]


def _mapping(document: YamlDocument, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        reason = _key_fault(document, key_node, path, result)
        if reason:
            document.problems.append(ConfigProblem(reason, _spot(key_node), _inner(path, key_node)))
        else:
            inner = (*path, key_node.value)
            document.keys[inner] = _spot(key_node)
            result[key_node.value] = _value(document, value_node, inner)
    return result


def _key_fault(document: YamlDocument, node: yaml.Node, path: KeyPath, known: dict[str, Any]) -> str | None:
    if not isinstance(node, yaml.ScalarNode):
        return "a key is a word, not a list or a block; text that holds { or [ must be in quotes"
    if node.tag.endswith(":merge"):
        return "merge keys (<<) are not supported; write the keys out"
    if node.value in known:
        return f"written twice; the first is in line {document.keys[(*path, node.value)].line}"
    return None if is_clean(node.value) else "a key is a word without control characters"


def _inner(path: KeyPath, node: yaml.Node) -> KeyPath:
    return (*path, node.value) if isinstance(node, yaml.ScalarNode) else path


def _leaf(document: YamlDocument, node: yaml.ScalarNode, path: KeyPath) -> Any:
    if not is_clean(node.value):
        document.problems.append(ConfigProblem("contains a control character", _spot(node), path))
        return None
    if node.style not in _QUOTED:
        document.plain.add(path)
    return _scalar(node)


def _scalar(node: yaml.ScalarNode) -> Any:
    """Numbers, switches and nothing; all else, dates and numbers beyond 64 bits too, stays text."""
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


def _syntax(error: yaml.MarkedYAMLError) -> ConfigProblem:
    begun = f" (begun in line {error.context_mark.line + 1})" if error.context_mark else ""
    reason = f"{error.context}{begun}, {error.problem}" if error.context else str(error.problem)
    if "cannot start any token" in reason:
        reason += " (indent with spaces, not tabs; quote text that begins with @ or `)"
    mark = error.problem_mark or error.context_mark
    return ConfigProblem(f"not valid YAML: {reason}", FilePosition(mark.line + 1, mark.column + 1) if mark else None)


def _spot(item: Any) -> FilePosition:
    return FilePosition(item.start_mark.line + 1, item.start_mark.column + 1)


def _spot_at(text: str, offset: int) -> FilePosition:
    before = text[:offset]
    return FilePosition(before.count("\n") + 1, offset - before.rfind("\n"))


def _tag_name(tag: str) -> str:
    return _tame(tag.replace("tag:yaml.org,2002:", "!!"))


def _tame(text: str) -> str:
    short = text if len(text) <= 60 else f"{text[:60]}…"
    return short if short.isprintable() and short else ascii(short)
