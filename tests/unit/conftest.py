"""Property tests without a time limit for each example: a busy machine is no fault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Networks as small as the tests' are many times slower on several threads of a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
