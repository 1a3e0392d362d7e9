"""``python -m prefrl``, which is how the supervisor starts a role."""

import contextlib
import os
import sys

from prefrl.cli import main

try:
    main()
except SystemExit as end:  # the interpreter would take most of a second to dismantle torch
    if not isinstance(end.code, int):
        raise
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(end.code)
