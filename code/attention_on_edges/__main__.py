"""The book's command, ``python -m attention_on_edges``."""

import os
import sys
from pathlib import Path

if sys.stderr is None:  # closed, as a daemon's may be; progress is written there
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115

try:
    from attention_on_edges.cli.app import app

    app()
except KeyboardInterrupt:  # while all that is imported, too
    sys.exit(130)
except OSError as error:  # the disk to which output goes is full, say
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    print(f"error: {error}", file=sys.stderr)
    sys.exit(1)
