"""What a process that computes with torch sets up first: one thread, and memory that is kept for reuse."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of the GNU C library


def settle(threads: int) -> None:
    """Use ``threads`` torch threads, and keep freed memory.

    The GNU allocator gives every block of a few megabytes back to the kernel and gets it anew, page by page;
    fitting then takes up to twice as long.
    """
    import torch

    torch.set_num_threads(threads)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        if libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20):  # the most that every version of it accepts
            libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
