"""Deep reinforcement learning from human preferences (Christiano et al. 2017, arXiv 1706.03741)."""

__version__ = "0.1.0"
