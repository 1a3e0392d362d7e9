"""When things happen, in agent steps; agreed between the roles through the configuration alone."""

from __future__ import annotations

from prefrl.config import PolicyConfig, RunConfig
from prefrl.reward_model.schedule import n_initial, n_scheduled


def rollout_size(policy: PolicyConfig) -> int:
    """Agent steps between two updates of the policy (resolved configuration)."""
    assert policy.n_steps is not None, "the configuration is resolved before a run starts"
    return policy.n_steps * policy.n_envs


def sync_steps(policy: PolicyConfig) -> int:
    """Agent steps between two exchanges: ``policy.sync_every`` rounded up to whole rollouts."""
    size = rollout_size(policy)
    return -(-policy.sync_every // size) * size


def max_reward_age(config: RunConfig) -> int:
    """Agent steps that the newest reward version may be behind the rollout: at least one exchange.

    Where fitting takes longer than acting, a short run would otherwise end with half the versions of a lockstep
    run; and without this a policy would go on learning for ever on the reward of a process that has died.
    """
    return max(config.reward.max_age or config.policy.steps // 30, sync_steps(config.policy))


def learning_starts(config: RunConfig) -> int:
    """Agent steps of the untrained policy, from which the initial comparisons are asked.

    As many as there are steps in one segment for each initial comparison, rounded up to whole rollouts, so
    that a step is in about two of the segments compared; at most half of the run.
    """
    if config.reward.source != "learned":  # nothing is asked
        return 0
    assert config.env.segment_steps is not None, "the configuration is resolved before a run starts"
    wanted = n_initial(config.label) * config.env.segment_steps
    unit = rollout_size(config.policy)
    return max(unit, min(-(-wanted // unit) * unit, config.policy.steps // 2 // unit * unit))


def least_steps(config: RunConfig) -> int:
    """The fewest agent steps of a run that learns: one rollout of the policy, and one of the untrained before it."""
    unit = rollout_size(config.policy)
    return 2 * unit if config.reward.source == "learned" else unit


def answers_behind(config: RunConfig, env_steps: int, n_counted: int) -> int:
    """How many answers the schedule is ahead of those that there are; negative where there are more."""
    start = learning_starts(config)
    learned = max(0, env_steps - start)  # a longer run may have a later start
    return n_scheduled(config.label, learned, config.policy.steps - start) - n_counted
