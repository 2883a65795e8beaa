"""YAML with positions, and the YAML that is refused (fault case 90)."""

import time

import pytest
import yaml

from csi.config import yaml_reader
from csi.config.yaml_reader import FilePosition, dotted, parse_yaml, retype

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture(params=["SafeLoader", "CSafeLoader"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers must behave: a machine without libyaml has only the first."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml_reader, "_Loader", getattr(yaml, request.param))


def test_every_key_and_value_knows_its_place() -> None:
    document = parse_yaml("a:\n  b:\n    - c: 5\n")
    assert document.data == {"a": {"b": [{"c": 5}]}}
    assert document.keys[("a", "b")] == FilePosition(2, 3)
    assert document.values[("a", "b", 0, "c")] == FilePosition(3, 10)
    assert document.problems == []


@pytest.mark.parametrize(
    ("text", "spot", "words"),
    [
        ("a: !!python/object/apply:os.system [id]", FilePosition(1, 4), "tag !!python/object/apply:os.system"),
        ("a: 1\nb: !mine x", FilePosition(2, 4), "tag !mine"),
        ("a: !!str 5", FilePosition(1, 4), "tag !!str"),
        ("a: 1\nb: 2\na: 3", FilePosition(3, 1), "written twice; the first is in line 1"),
        ("x:\n  a: 1\n  a: 3", FilePosition(3, 3), "written twice; the first is in line 2"),
        ("a: 1\n---\nb: 2", FilePosition(2, 1), "second document"),
        ("a: &x {b: 1}\nc:\n  <<: *x", FilePosition(3, 3), "merge keys"),
        ("a: [1}", FilePosition(1, 6), "while parsing a flow sequence (begun in line 1)"),
        ("a: b: c", FilePosition(1, 5), "not valid YAML"),
        ("\ta: b", FilePosition(1, 1), "spaces, not tabs"),
        ("a: 1\nb: \x07", FilePosition(2, 4), "character U+0007"),
        ("a: *nowhere", FilePosition(1, 4), "undefined alias"),
        ("- a\n- b", FilePosition(1, 1), "keys and values at the top"),
        ("just words", FilePosition(1, 1), "keys and values at the top"),
        ("? [a, b]\n: c", FilePosition(1, 3), "a key is a word"),
        ("a: ${X}\n? ${Y}\n: {b: ${Z}}", FilePosition(3, 8), "not valid YAML"),
        ("[" * 3000, FilePosition(1, 21), "nested deeper"),
        ("{a: " * 3000, FilePosition(1, 81), "nested deeper"),
        ("a: &a [*a]", FilePosition(1, 1), "alias inside its own anchor"),
        (BOMB, FilePosition(1, 1), "more than 200,000 values"),
        ("a: &a x\nb: [" + "*a, " * 101 + "]", FilePosition(2, 405), "more than 100 aliases"),
        ('a: "\\0"', FilePosition(1, 4), "control character"),
        ("", None, "empty"),
        ("# only a comment", None, "empty"),
    ],
)
def test_hostile_yaml_is_refused_with_its_line(text: str, spot: FilePosition | None, words: str) -> None:
    started = time.process_time()
    problems = parse_yaml(text).problems
    assert len(problems) == 1
    assert problems[0].where == spot
    assert words in problems[0].text
    assert time.process_time() - started < 5


def test_several_tags_are_told_at_once() -> None:
    assert len(parse_yaml("a: !x 1\nb: !y 2\n").problems) == 2


def test_an_alias_for_a_whole_value_is_followed() -> None:
    assert parse_yaml("a: &t [x, y]\nb: *t").data == {"a": ["x", "y"], "b": ["x", "y"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1.5", 1.5),
        ("yes", True),
        ("off", False),
        ("", None),
        ("~", None),
        ("5m", "5m"),
        ("2026-01-01", "2026-01-01"),
        ("2026-99-99", "2026-99-99"),
        ("9" * 5000, "9" * 5000),
        ("0x" + "f" * 5000, "0x" + "f" * 5000),
        ("<<", "<<"),
        ("{a: 1}", "{a: 1}"),
        ("[1, 2]", "[1, 2]"),
        ("0b_", "0b_"),
    ],
)
def test_a_scalar_is_typed_but_never_becomes_structure(text: str, value: object) -> None:
    assert retype(text) == value
    assert type(retype(text)) is type(value)


def test_a_path_is_written_as_people_read_it() -> None:
    assert dotted(("sources", "x", "playlists", 0, "id")) == "sources.x.playlists[0].id"
    assert dotted(("a\x1b[31m", "b" * 100)).isprintable()
    assert len(dotted(("b" * 100,))) < 70
