"""``python -m prefrl``, which is how the supervisor starts a role."""

import os
import sys

from prefrl.cli import main

try:
    main()
except SystemExit as end:  # the interpreter would take most of a second to dismantle torch
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end.code if isinstance(end.code, int) else 0)
