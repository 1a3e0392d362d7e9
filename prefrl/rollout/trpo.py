"""TRPO with the paper's entropy bonus."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import TRPO
from sb3_contrib.common.utils import conjugate_gradient_solver
from stable_baselines3.common.distributions import Distribution, kl_divergence
from stable_baselines3.common.utils import explained_variance
from torch import Tensor
from torch.nn import functional as F


class EntropyTRPO(TRPO):
    """sb3-contrib's TRPO, whose surrogate has ``ent_coef`` times the policy's entropy added.

    The paper uses 0.01 (swimmer 0.001) when learning from the reward predictor (section 2.2.1 and appendix
    A.1), and does not say where it enters. Advantages are standardised, so the coefficient is relative to
    advantages of unit variance. An update that is not finite is left out, and the old parameters stay.
    """

    def __init__(self, policy: Any, env: Any, *, ent_coef: float = 0.01, **kwargs: Any) -> None:
        super().__init__(policy, env, **kwargs)
        self.ent_coef = ent_coef

    def train(self) -> None:
        """One natural-gradient step for the policy, then regression of the values."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        rollout = next(self.rollout_buffer.get(batch_size=None))
        if self.sub_sampling_factor > 1:
            rollout = type(rollout)(*(x[:: self.sub_sampling_factor] for x in rollout))
        actor = self._update_policy(rollout)
        losses = self._update_values(actor)
        self._n_updates += 1
        values, returns = self.rollout_buffer.values.flatten(), self.rollout_buffer.returns.flatten()
        self.logger.record("train/value_loss", float(np.mean(losses)))
        self.logger.record("train/explained_variance", explained_variance(values, returns))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if hasattr(self.policy, "log_std"):
            self.logger.record("train/std", torch.exp(self.policy.log_std).mean().item())

    def _update_policy(self, rollout: Any) -> list[torch.nn.Parameter]:
        actions = rollout.actions
        if isinstance(self.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        advantages = rollout.advantages
        if self.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

        def surrogate(distribution: Distribution) -> tuple[Tensor, Tensor]:
            log_prob = distribution.log_prob(actions)
            entropy = distribution.entropy()
            entropy = -log_prob.mean() if entropy is None else entropy.mean()
            gain = (advantages * torch.exp(log_prob - rollout.old_log_prob)).mean()
            return gain + self.ent_coef * entropy, entropy

        with torch.no_grad():
            old = copy.copy(self.policy.get_distribution(rollout.observations))  # the policy reuses one object
        distribution = self.policy.get_distribution(rollout.observations)
        objective, entropy = surrogate(distribution)
        kl = kl_divergence(distribution, old).mean()
        self.policy.optimizer.zero_grad()
        params, gradient, kl_gradient, _ = self._compute_actor_grad(kl, objective)
        product = partial(self.hessian_vector_product, params, kl_gradient)
        direction = conjugate_gradient_solver(product, gradient, max_iter=self.cg_max_steps)
        curvature = torch.dot(direction, product(direction, retain_graph=False))
        step = direction * torch.sqrt(2 * self.target_kl / curvature)

        start = torch.nn.utils.parameters_to_vector(params).detach().clone()
        accepted, reached = False, 0.0
        if torch.isfinite(step).all():
            with torch.no_grad():
                for shrinking in self.line_search_shrinking_factor ** np.arange(self.line_search_max_iter):
                    torch.nn.utils.vector_to_parameters(start + float(shrinking) * step, params)
                    trial = self.policy.get_distribution(rollout.observations)
                    reached = float(kl_divergence(trial, old).mean())
                    accepted = reached < self.target_kl and bool(surrogate(trial)[0] > objective)
                    if accepted:
                        break
        if not accepted:
            with torch.no_grad():
                torch.nn.utils.vector_to_parameters(start, params)
        self.logger.record("train/policy_objective", objective.item())
        self.logger.record("train/entropy", entropy.item())
        self.logger.record("train/kl_divergence_loss", reached if accepted else 0.0)
        self.logger.record("train/is_line_search_success", float(accepted))
        return params

    def _update_values(self, actor: list[torch.nn.Parameter]) -> list[float]:
        losses = []
        for _ in range(self.n_critic_updates):
            for batch in self.rollout_buffer.get(self.batch_size):
                loss = F.mse_loss(batch.returns, self.policy.predict_values(batch.observations).flatten())
                losses.append(loss.item())
                self.policy.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
                for parameter in actor:  # only the critic is fitted, or the KL constraint would mean nothing
                    parameter.grad = None
                self.policy.optimizer.step()
        return losses
