"""What the pages state as fact is what the code has: states, log lines, codes, reasons, commands, links."""

import ast
import re
from pathlib import Path

import pytest

from csi import errors
from csi.processing.states import STAGES, STATUSES, TRANSITIONS
from csi.processing.store import db as processing_db
from csi.status.destinations import STATE_TEXTS
from csi.store import db
from tests.fakes.pages import ALL, PAGES, ROOT, anchors, blocks, codes, links, rows, section

PROCESSING = ROOT / "docs/processing.md"
DECISIONS = ROOT / "ops/decisions/README.md"
ARCHITECTURE, OPERATE, RUNBOOK = ROOT / "docs/architecture.md", ROOT / "docs/operate.md", ROOT / "ops/runbook.md"
SOURCES = [
    path
    for folder in ("csi", "tasks")
    for path in (ROOT / folder).rglob("*.py")
    if not {"demo", "simulator"} & set(path.parts)
]
LOUD = {"warning", "error", "exception", "critical", "warn"}


def schema() -> str:
    """Of all migrations together."""
    return "\n".join(path.read_text() for path in sorted(db.MIGRATIONS.glob("0*.py")))


def test_every_state_of_the_schema_is_drawn():
    lists = re.findall(r"CHECK \(\w+ IN \(([^)]*)\)", schema())
    states = {word for words in lists for word in re.findall(r"\w+", words)}
    drawn = section(ARCHITECTURE, "States")
    assert len(states) > 20
    assert {state for state in states if not re.search(rf"\b{state}\b", drawn)} == set()


def test_every_state_of_processing_is_named():
    schema = (processing_db.MIGRATIONS / "0001_processing.py").read_text()
    listed = re.findall(r"CHECK \(\w+ IN\s*\(([^){]*)\)", schema)
    states = {word for words in listed for word in re.findall(r"'([a-z_]+)'", words)} | set(STATUSES) | set(STAGES)
    drawn = section(PROCESSING, "The pipeline") + section(PROCESSING, "Dead letters, audit, runs")
    assert len(states) > 25
    assert {state for state in states if f"`{state}`" not in drawn} == set()


def test_the_transitions_of_a_video_are_the_codes():
    told = {codes(cells[0])[0]: tuple(codes(cells[1])) for cells in rows(section(PROCESSING, "The pipeline"))}
    assert told == TRANSITIONS


def test_every_table_of_the_schema_is_explained():
    explained = [cells[0].strip("`") for cells in rows(section(ARCHITECTURE, "Tables"))]
    renamed = dict(re.findall(r"ALTER TABLE (\w+) RENAME TO (\w+)", schema()))
    created = re.findall(r"CREATE TABLE (\w+)", schema())
    assert set(explained) == {renamed.get(table, table) for table in created}


def test_every_package_is_in_the_tree():
    tree = section(ARCHITECTURE, "Packages")
    names = [path.name for path in (ROOT / "csi").iterdir() if path.name not in ("__init__.py", "__pycache__")]
    names = [f"{name}/" if (ROOT / "csi" / name).is_dir() else name for name in names]
    assert [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}", tree)] == []


def test_the_pipeline_table_names_the_steps_and_their_tasks():
    steps = rows(section(ARCHITECTURE, "The pipeline"))
    tasks = "".join(path.read_text() for path in (ROOT / "tasks").glob("*.py"))
    assert [cells[0] for cells in steps] == [
        "schedule",
        "poll",
        "ingest",
        "flush",
        "deliver",
        "settle",
        "redrive",
        "rescue",
    ]
    assert [name for cells in steps for name in codes(cells[2]) if f"def {name}(" not in tasks] == []


def test_the_first_screen_has_the_tree_the_walk_and_the_glossary():
    headings = re.findall(r"^## (.*)$", ARCHITECTURE.read_text(), re.MULTILINE)
    assert headings[:4] == ["The tree", "The walk of an item", "Glossary", "Packages"]
    assert ARCHITECTURE.read_text().split("## Packages")[0].count("\n") <= 65


def test_every_state_of_a_destination_is_in_the_glossary():
    (cells,) = [cells for cells in rows(section(ARCHITECTURE, "More terms")) if cells[0] == "destination state"]
    assert set(codes(cells[1])) == set(STATE_TEXTS)


def test_the_layers_are_those_that_are_checked():
    text = (ROOT / "pyproject.toml").read_text()
    layers = re.findall(r'"([^"]+)"', re.search(r"layers = \[(.*?)\]", text, re.DOTALL)[1])
    drawn = section(ARCHITECTURE, "Layers")
    places = [drawn.index(layer.split(" | ")[0]) for layer in layers]
    assert places == sorted(places)
    assert all(name in drawn for layer in layers for name in layer.split(" | "))


def test_every_warning_is_in_the_runbook_and_no_other():
    told = {codes(cells[0])[0] for cells in rows(section(RUNBOOK, "Log lines"))}
    assert told == {sentence for path in SOURCES for sentence in _loud_sentences(path)}


def _loud_sentences(path: Path) -> list[str]:
    """The constant first arguments of log.warning(…), log.opt(…).error(…), sidecar.warn(…) and their like, also where
    they were assigned to a name before."""
    text = path.read_text()
    if not any(f".{name}(" in text for name in (*LOUD, "log_database_error")):
        return []
    nodes = list(ast.walk(ast.parse(text)))
    loud = [node.args[0] for node in nodes if isinstance(node, ast.Call) and node.args and _is_loud(node.func)]
    names = {node.id for node in loud if isinstance(node, ast.Name)}
    assigned = [node.value for node in nodes if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names]
    return [node.value for node in (*loud, *assigned) if isinstance(node, ast.Constant)]


def _is_loud(called: ast.expr) -> bool:
    if not isinstance(called, ast.Attribute):
        return False
    if called.attr not in LOUD:
        return called.attr == "log_database_error"
    return ast.unparse(called.value).partition(".")[0] in ("log", "self", "sidecar")


def test_every_exit_code_has_a_row():
    tree = [errors.CsiError, *_below(errors.CsiError)]
    codes_used = {error.exit_code for error in tree if error.__module__ == errors.__name__}
    told = {int(cells[0]) for cells in rows(section(OPERATE, "Exit codes"))}
    assert codes_used <= told == set(errors.EXIT_CODES)


def _below(kind: type) -> list[type]:
    return [inner for sub in kind.__subclasses__() for inner in (sub, *_below(sub))]


def test_the_commands_are_the_procfiles():
    lines = (ROOT / "Procfile").read_text().splitlines()
    shown = [codes(cells[1])[0] for cells in rows(section(OPERATE, "The processes"))]
    assert shown == [line.partition(": ")[2] for line in lines]


@pytest.mark.parametrize(
    ("heading", "places"),
    [
        ("First look", ("csi/status", "csi/web")),
        ("A source is not read", ("csi/adapters", "csi/pipeline", "csi/runtime.py")),
    ],
)
def test_quoted_sentences_are_really_said(heading, places):
    """Each quotation, cut at its ellipses and numbers, is in the code."""
    roots = [ROOT / place for place in places]
    files = [file for root in roots for file in (root.rglob("*.py") if root.is_dir() else [root])]
    code = "".join(file.read_text() for file in files)
    quoted = [text for cells in rows(section(RUNBOOK, heading)) for text in codes(cells[0])]
    pieces = [piece.strip() for text in quoted for piece in re.split(r"…|\d+", text) if len(piece.strip()) > 3]
    assert len(pieces) >= 6
    assert [piece for piece in pieces if piece not in code] == []


def test_the_outcomes_of_an_attempt_are_all_named():
    flow = "".join((ROOT / f"csi/pipeline/{name}.py").read_text() for name in ("deliver", "settle", "receiver_test"))
    store = (ROOT / "csi/store/attempts.py").read_text()
    finished = re.findall(r'finish_attempt\((?:this\.)?result, "(\w+)"', flow) + re.findall(r"'([a-z]+)'", store)
    named = codes(re.search(r"^Outcomes: .*(?:\n.+)*", RUNBOOK.read_text(), re.MULTILINE)[0])
    assert set(finished) | {"probe_failed"} == set(named)


def test_no_text_refers_to_a_document_outside_the_repository():
    texts = [path for folder in ("docs", "ops", "csi", "tasks", "tests") for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in [*texts, *ALL] if path.suffix in (".md", ".py", ".sh", ".yml", ".yaml", ".service")]
    outside = re.compile(r"\b(?:DECISIONS|FAULTS|FACTS|DESIGN)(?:\.md)? (?:§|I?\d)|\.\./shared/\w+\.md")
    assert [str(path.relative_to(ROOT)) for path in texts if outside.search(path.read_text())] == []


def test_every_cited_requirement_is_explained_in_the_repository():
    page = ROOT / "docs/requirements.md"
    explained = {
        cells[0] for heading in ("Sections", "Numbered requirements") for cells in rows(section(page, heading))
    }
    citation = re.compile(r"(?:PRD(?:'s)? |PRD, )(§[\d.]*\d|N?FR-[\d.]*\d|Appendix [A-C])|(?<![\w/])(N?FR-\d[\d.]*\d)")
    cited = {
        first or second: str(path.relative_to(ROOT))
        for folder in ("csi", "tasks", "docs", "ops", "tests", "config")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".md", ".py", ".sh", ".yml", ".yaml") and path.name != "CHANGELOG.md"
        for first, second in citation.findall(path.read_text())
    }
    assert len(cited) > 15
    assert {name: place for name, place in cited.items() if name not in explained} == {}


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page):
    if page.name == "CHANGELOG.md":
        return  # it names what was there then
    named = [text for text in codes(page.read_text()) if re.fullmatch(r"(?:csi|tasks|tests|ops|config)/[\w./-]+", text)]
    assert [text for text in named if not (ROOT / text).exists()] == []


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_the_actor(page):
    """Quoted code is checked where it comes from."""
    prose = re.sub(r"`[^`]*`", "", page.read_text())
    assert re.findall(r"(?i)\b(?:somebody|nobody|whoever)\b.*", prose) == []


def test_every_fault_case_is_in_the_catalogue_and_its_tests_exist():
    catalogue = rows(section(ROOT / "docs/faults.md", "The catalogue"))
    told = {
        cells[0]: [
            name.removeprefix("tests/faults/") for name in codes(cells[3]) if "/" in name or name.endswith(".py")
        ]
        for cells in catalogue
    }
    real = {
        (number, path.name)
        for path in (ROOT / "tests/faults").glob("test_*.py")
        for number in re.findall(r"def test_case_(\d+)_", path.read_text())
    }
    assert [case for case in sorted(real) if case[1] not in told.get(case[0], [])] == []
    names = {name if "/" in name else f"tests/faults/{name}" for tests in told.values() for name in tests}
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert len(told) == len(catalogue) >= 99


def test_the_index_names_every_decision_and_the_numbers_that_are_not_used():
    files = {path.name[:4]: path for path in (ROOT / "ops/decisions").glob("0*.md")}
    told = {re.sub(r"\D.*", "", cells[0].lstrip("[")): cells[1] for cells in rows(DECISIONS.read_text())}
    titles = {number: path.read_text().partition("\n")[0] for number, path in files.items()}
    assert list(told) == [f"{number:04}" for number in range(1, int(max(files)) + 1)]
    assert {number: f"# {number} {told[number]}" for number in files} == titles
    assert all(text.startswith("number not used") for number, text in told.items() if number not in files)


@pytest.mark.parametrize("path", sorted((ROOT / "ops/decisions").glob("0*.md")), ids=lambda path: path.name[:4])
def test_a_decision_has_context_decision_and_consequences(path):
    labels = re.findall(r"^\*\*(Context|Decision|Consequences)\.\*\*", path.read_text(), re.MULTILINE)
    assert labels == ["Context", "Decision", "Consequences"]


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"https?://", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_have_a_language_that_is_checked(page):
    receivers = {"py", "js", "go", "php"} if page.name == "receiver-guide.md" else set()  # test_receiver_languages.py
    assert {block.language for block in blocks(page)} <= {"", "json", "python", "sh", "yaml", *receivers}
