"""``prefrl``, and ``python -m prefrl``, which is how the supervisor starts a role."""

import contextlib
import os
import sys


def run() -> None:
    """Parse the command line and do it; Ctrl-C is quiet from the first import on.

    Raises:
        SystemExit: With the words that argparse wants to say.
    """
    try:
        from prefrl.cli import main

        main()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)  # the interpreter would take most of a second to dismantle torch


if __name__ == "__main__":
    run()
