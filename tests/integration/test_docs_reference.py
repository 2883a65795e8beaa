"""docs/configure.md: its tables are what the code says, and its sample errors are the ones printed."""

import re

import pytest
from click.testing import CliRunner

from csi.cli.config import config
from csi.config.variables import OVERRIDES, SECRET_KEYS, SECRETS
from csi.errors import ConfigError
from csi.worker import reload
from ops import docs
from tests.fakes.pages import ROOT, blocks, codes, rows, section

PAGE = ROOT / "docs" / "configure.md"
SOURCES = [path for folder in ("csi", "tasks") for path in (ROOT / folder).rglob("*.py")]
BROKEN = "# broken on purpose"


def test_the_keys_that_need_a_restart_are_those_that_a_reload_keeps():
    told = [set(codes(cells[0])) for cells in rows(section(PAGE, "After a change"))]
    assert set(reload.FIXED) in told


@pytest.mark.parametrize("name", docs.blocks())
def test_the_generated_tables_are_up_to_date(name):
    text = docs.blocks()[name]
    expected = f"<!-- generated: {name} -->\n\n{text}\n\n<!-- end: {name} -->"
    assert expected in PAGE.read_text(), f"run `python -m ops.docs`, or paste this into {PAGE}:\n\n{expected}"


def test_every_variable_that_the_code_reads_is_in_the_table():
    table = docs.variable_tables()
    read = {name for path in SOURCES for name in re.findall(r'"((?:CSI|UA)_[A-Z_]+[A-Z])"', path.read_text())}
    known = read | set(OVERRIDES) | set(SECRETS) | set(SECRET_KEYS.values())
    assert len(known) > 15
    assert {name for name in known if f"`{name}`" not in table} == set()


@pytest.mark.parametrize("key", docs.WITHOUT_EFFECT)
def test_a_key_without_effect_is_really_not_used(key):
    word = re.compile(rf"\.{key.rpartition('.')[2]}\b")
    readers = [
        path for path in SOURCES if not {"demo", "simulator"} & set(path.parts) and word.search(path.read_text())
    ]
    assert readers == [], f"{key} is used now: take it out of ops/docs.py WITHOUT_EFFECT"


def test_the_sample_errors_are_the_ones_printed(tmp_path, monkeypatch):
    page = blocks(PAGE)
    at = next(index for index, block in enumerate(page) if block.first_line == BROKEN)
    (tmp_path / "config.yaml").write_text(page[at].text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(config, ["check", "--config", "config.yaml"])
    assert isinstance(result.exception, ConfigError)
    assert page[at + 1].text.rstrip("\n") == f"csi: {result.exception}"
    assert len(page[at + 1].text.splitlines()) == 3
