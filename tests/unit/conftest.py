"""Property tests without a time limit for each example: a busy machine is no fault."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
