"""`csi config` and `csi schema` as a person or a script sees them."""

import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "config"


def test_the_process_ends_with_3_and_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "csi.cli.main", "config", "check", "--config", str(DATA / "broken.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "unknown key; did you mean poll_interval_seconds?" in done.stderr
    assert "Traceback" not in done.stderr
