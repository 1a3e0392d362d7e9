"""What the task, the learner and the annotator decide of a run's settings."""

from __future__ import annotations

import dataclasses

from prefrl.config import AHEAD, BUDGET, FEWEST_HELD_OUT, HELD_OUT, LEAST_LAG, LabelConfig, PolicyConfig, RunConfig

MINIBATCHES, FEWEST_AT_ONCE, MOST_AT_ONCE = 60_000, 20, 200  # of the reward's fit: in a whole run; at an exchange


def resolve_policy(policy: PolicyConfig) -> PolicyConfig:
    """Fill in the learner's own number of steps between two updates."""
    return dataclasses.replace(policy, n_steps=policy.n_steps or {"trpo": 512, "a2c": 5}.get(policy.learner, 1024))


def usual_fit_steps(policy: PolicyConfig) -> int:
    """Minibatches at each exchange, unless told otherwise.

    A run of many steps has no more comparisons than a short one: as many at each exchange as a short run needs took
    more than two thirds of the time of one of a million.
    """
    return min(max(FEWEST_AT_ONCE, round(MINIBATCHES * policy.sync_every / policy.steps)), MOST_AT_ONCE)


def resolve_label(label: LabelConfig, steps: int, comparisons: int | None = None) -> LabelConfig:
    """Fill in the budget and what follows from it and from who answers.

    A person answers a few times a minute and may go away: unless told otherwise the policy then waits, rather than
    learn on without the comparisons that it was meant to have by then.
    """
    people = label.oracle == "none"
    budget = label.budget or comparisons or BUDGET
    max_lag, ahead = (max(LEAST_LAG, budget // 50), AHEAD) if people else (0, 0)
    held_out = HELD_OUT if people and round(HELD_OUT * budget) >= FEWEST_HELD_OUT else 0.0
    return dataclasses.replace(
        label,
        budget=budget,
        tau=label.tau or max(1, steps // 10),
        max_lag=max_lag if label.max_lag is None else label.max_lag,
        ahead=ahead if label.ahead is None else label.ahead,
        held_out_share=held_out if label.held_out_share is None else label.held_out_share,
    )


def resolve(config: RunConfig) -> RunConfig:
    """Fill in what the task and learner decide, so that a run's stored settings are complete."""
    from prefrl.envs.tasks import find_task

    task = find_task(config.env.id)
    env = config.env
    if task is not None:
        env = dataclasses.replace(
            env, horizon=env.horizon or task.horizon, segment_steps=env.segment_steps or task.segment_steps
        )
    policy = resolve_policy(config.policy)
    if task is not None and policy.learner == "trpo" and "ent_coef" not in policy.kwargs:
        policy = dataclasses.replace(policy, kwargs={**policy.kwargs, "ent_coef": task.entropy})
    env = dataclasses.replace(env, segment_steps=env.segment_steps or 25)
    label = resolve_label(config.label, config.policy.steps, task.comparisons if task else None)
    query = dataclasses.replace(config.query, max_age=config.query.max_age or max(1, config.policy.steps // 10))
    reward = dataclasses.replace(config.reward, fit_steps=config.reward.fit_steps or usual_fit_steps(policy))
    return dataclasses.replace(config, env=env, policy=policy, reward=reward, label=label, query=query)
