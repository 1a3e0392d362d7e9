"""Deep reinforcement learning from human preferences (Christiano et al. 2017, arXiv 1706.03741).

What scripts of your own need is here: ``LearnedReward``, ``PinNewest``, ``published_reward``, ``load_reward``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefrl.reward_model.published import load_reward, published_reward
    from prefrl.rollout.learned_reward import LearnedReward, PinNewest

__version__ = "0.1.0"
__all__ = ["LearnedReward", "PinNewest", "load_reward", "published_reward"]

_HOMES = {
    "LearnedReward": "prefrl.rollout.learned_reward",
    "PinNewest": "prefrl.rollout.learned_reward",
    "load_reward": "prefrl.reward_model.published",
    "published_reward": "prefrl.reward_model.published",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``prefrl --help`` need not import torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'prefrl' has no attribute {name!r}")
