"""A short run of `make fuzz`."""

from tests import fuzz


def test_mutated_input_gives_errors_of_ours_only():
    executions, findings = fuzz.run(1.0, seed=7)
    assert findings == []
    assert executions >= len(fuzz.TARGETS)
