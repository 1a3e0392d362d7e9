"""The comparison database: everything that must outlive a process, behind one URL.

The functions live in one module per subject and take a `Database` first. This package knows no torch.
"""

from prefrl.store.engine import Database

__all__ = ["Database"]
