"""Silent stops: each injected fault is reported in time, by every surface that has to, once, with cause and remedy.

The rows are in `trust_table.py`. Each has an installation of its own, and many run at the same time: most of the time
a row waits for a notification that is due three minutes after the first failure.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.pages import ROOT, rows, section
from tests.faults.trust_table import TABLE
from tests.rigs.prometheus import prometheus
from tests.rigs.trust import Injection, Observation, QuietRun, deploy_and_kill, line, measure

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trust")]

AT_ONCE = 20
"""Installations at the same time; each uses a few per cent of a core while it waits."""
QUIET_SECONDS = {"quick": 30.0, "full": 300.0}


class TableRun:
    """The rows that this session selected, all begun when the first of them is asked for.

    `to_the_end`: each also waits for the message that the problem is resolved.
    """

    def __init__(self, rows: list[Injection], home: Path, *, to_the_end: bool) -> None:
        self._opened, self._pool = ExitStack(), ThreadPoolExecutor(AT_ONCE)
        server = self._opened.enter_context(prometheus(home / "prometheus")) if to_the_end else None
        seconds = QUIET_SECONDS["full" if to_the_end else "quick"]
        self.quiet: Future[QuietRun] = self._pool.submit(deploy_and_kill, home / "quiet", server, seconds=seconds)
        self._rows: dict[str, Future[Observation]] = {
            row.name: self._pool.submit(measure, home / row.name, row, server, to_the_end=to_the_end)
            for row in sorted(rows, key=lambda row: -row.limit)
        }

    def result(self, row: Injection) -> Observation:
        return self._rows[row.name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._opened.close()


@pytest.fixture(scope="module")
def table_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableRun]:
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    selected = [getattr(item, "callspec", None) for item in request.session.items]
    found = [spec.params["row"] for spec in selected if spec and isinstance(spec.params.get("row"), Injection)]
    run = TableRun(found, tmp_path_factory.mktemp("trust"), to_the_end=any(not row.quick for row in found))
    yield run
    run.close()


def _parameter(row: Injection) -> object:
    marks = [] if row.quick else [pytest.mark.faults]
    return pytest.param(row, id=f"{row.number}_{row.name}", marks=marks)


@pytest.mark.parametrize("row", [_parameter(row) for row in TABLE])
def test_trust(row: Injection, table_run: TableRun, record_property) -> None:
    seen = table_run.result(row)
    said = line(row, seen)
    record_property("oracle", said)
    assert not seen.faults, said


def test_deploys_and_kills_are_no_incident(table_run: TableRun, record_property) -> None:
    quiet = table_run.quiet.result()
    told = f"messages={len(quiet.messages)} alerts={len(quiet.alerts)}"
    said = f"trust 0 deploys_and_kills: disturbances={quiet.disturbances} delivered={quiet.delivered} {told}"
    record_property("oracle", said)
    assert (quiet.messages, quiet.alerts, quiet.rules, quiet.is_ready) == ([], [], [], True)


def described(row: Injection) -> list[str]:
    """The row of docs/faults.md."""
    pages = [f"`/{name}`" for name, has_to in (("readyz", row.readyz), ("livez", row.livez)) if has_to]
    within = f"{row.limit:.0f} s" if row.notifies else "–"
    command = f"`{row.remedy}`" if row.remedy else "–"
    injected = row.name.replace("_", " ") + (" (quick)" if row.quick else "")
    said = f"`{row.problem}`" if row.problem else "`csi doctor`"
    return [str(row.number), injected, said, within, ", ".join(pages) or "–", command]


def test_the_catalogue_of_faults_has_every_row() -> None:
    assert rows(section(ROOT / "docs/faults.md", "Silent stops")) == [described(row) for row in TABLE]


def test_the_table_has_forty_injections_and_each_has_its_number() -> None:
    assert len(TABLE) >= 40
    assert len({row.name for row in TABLE}) == len(TABLE)
