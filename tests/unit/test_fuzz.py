"""A short run of `make fuzz`."""

from tests import fuzz


def test_mutated_input_gives_errors_of_ours_only():
    result = fuzz.run(1.5, seed=7)
    assert [str(finding) for finding in result.findings] == []
    assert set(result.executions) == set(fuzz.TARGETS)


def test_what_is_not_one_of_our_errors_is_a_finding(monkeypatch):
    def read(data: bytes) -> None:
        raise KeyError("x")

    monkeypatch.setitem(fuzz.TARGETS, "broken", fuzz.Target([b"good"], read))
    (finding, *_) = fuzz.run(0.0, seed=1, targets=["broken"]).findings
    assert str(finding) == "broken: KeyError('x') for 4 bytes: b'good'"
