"""The methods that studies compare, each a set of the product's own settings over its defaults."""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]

# The paper's ablations (section 3.3 and figure 5) and its upper reference. Its "no regularization" keeps dropout, which
# it does not give for these tasks; here there is none by default, so that nothing at all is left.
METHODS: dict[str, Settings] = {
    "rl": {"reward": {"source": "true"}},
    "original": {},
    "random-queries": {"query": {"selector": "random"}},
    "no-ensemble": {"reward": {"n_members": 1}, "query": {"selector": "random"}},
    "no-online": {"label": {"schedule": "upfront"}},
    "no-regularization": {"reward": {"l2_initial": 0.0}},
    "no-segments": {"env": {"segment_steps": 1}},
    "target": {"reward": {"objective": "target"}},
    # Other queries than the paper's.
    "information": {"query": {"selector": "information"}},
    "diverse": {"query": {"batch": "diverse"}},
    "information-diverse": {"query": {"selector": "information", "batch": "diverse"}},
}
