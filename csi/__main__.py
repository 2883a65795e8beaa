"""`python -m csi`: the same as `csi`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `-m` puts the working directory first: a tasks.py or a csi.py in it must not replace ours.
    code = str(Path(__file__).resolve().parents[1])
    if not sys.flags.safe_path and sys.path[0] != code:
        sys.path[0] = code

    from csi.cli.main import run

    run()
