"""The rollout role: acts, records segments, learns on the learned reward, keeps checkpoints."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from prefrl.config import EnvConfig, RunConfig
from prefrl.envs.make import make_env
from prefrl.envs.tasks import has_true_reward
from prefrl.errors import EnvError
from prefrl.games import is_game
from prefrl.reward_model.published import PublishedReward
from prefrl.reward_model.schedule import n_initial
from prefrl.rollout import checkpoint
from prefrl.rollout.learned_reward import LearnedReward
from prefrl.rollout.learners import make_learner, make_normaliser
from prefrl.rollout.pace import answers_behind, learning_starts, max_reward_age, rollout_size, sync_steps
from prefrl.seeding import Stream, rng_for, seed_for
from prefrl.segments.recorder import SegmentRecorder
from prefrl.settings import from_dict
from prefrl.store.checkpoints import (
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from prefrl.store.comparisons import n_counted
from prefrl.store.engine import Database
from prefrl.store.metrics import add_metrics
from prefrl.store.retention import milestones
from prefrl.store.rewards import newest_fit
from prefrl.store.runs import Run
from prefrl.store.segments import add_segments, prune_segments

RECENT_EPISODES = 20


class Surroundings(Protocol):
    """What is around the role: other processes (async) or the other roles in this one (lockstep)."""

    def beat(self, env_steps: int, state: str) -> None:
        """Say that the role is alive."""

    def exchange(self) -> None:
        """Let the other roles do what they can with what is in the database; called once a rollout or more."""

    def wait(self) -> None:
        """Called again and again while the role can do nothing until another role has done something."""

    def stopping(self) -> bool:
        """True once the role should finish its step, save and return."""


def make_venv(env: EnvConfig, n_envs: int, seed: int) -> VecEnv:
    """The environments, each with its true return monitored, each seeded once."""

    def make() -> gym.Env[Any, Any]:
        made = make_env(env.id, horizon=env.horizon, ends=env.ends, kwargs=env.kwargs)
        # a game tells its own scores, and a monitor would keep all rewards of an episode that never ends
        return made if is_game(env.id) else Monitor(made)

    venv = DummyVecEnv([make] * n_envs)
    venv.seed(seed)
    return venv


class RolloutRole:
    """One policy, one ``learn()`` call for the whole life of the process.

    Args:
        db: The run's database.
        run: The run.
        around: The other roles, in other processes or in this one.
        log_dir: Folder for TensorBoard files, or None.
    """

    name = "rollout"

    def __init__(self, db: Database, run: Run, around: Surroundings, log_dir: str | None = None) -> None:
        self.db, self.run, self.around = db, run, around
        self.config: RunConfig = from_dict(run.config)
        policy, env = self.config.policy, self.config.env
        assert env.segment_steps is not None, "the configuration is resolved before a run starts"
        self.learned = self.config.reward.source != "true"
        self.asks = self.config.reward.source == "learned"  # or the reward is there, and stays as it is
        self.truthful = has_true_reward(env.id)  # or there is nothing to tell about it
        self.start, self.sync = learning_starts(self.config), sync_steps(policy)
        stored = list_checkpoints(db, run.id)
        self.resumed_at = stored[-1].env_steps if stored else 0
        seed = seed_for(self.config.seed, Stream.POLICY, self.resumed_at)
        set_random_seed(seed)
        venv = make_venv(env, policy.n_envs, seed)
        self.recorder = SegmentRecorder(venv, env.segment_steps, self.sync // policy.n_envs)
        self.reward = LearnedReward(self.recorder, PublishedReward(db, run)) if self.learned else None
        self.normaliser = make_normaliser(self.reward or venv, policy)
        self.model = make_learner(policy, self.normaliser, seed)
        if log_dir is not None:
            self.model.tensorboard_log = log_dir
        if stored:
            checkpoint.unpack(load_checkpoint(db, run.id)[1], self.model, self.normaliser)
            self.model.num_timesteps = self.resumed_at
            self.model._n_updates = int(stored[-1].meta["n_updates"])

    def run_to_end(self) -> None:
        """Collect the untrained policy's segments if there are none yet, wait for the first reward, then learn."""
        if self.learned:
            if self.asks and not self.resumed_at:
                self._collect_initial()
            assert self.reward is not None
            while not self.reward.pin():
                if self.around.stopping():
                    return
                self.around.beat(self.model.num_timesteps, "waiting for the first reward version")
                self.around.wait()
        if not self.resumed_at:
            self.save()
        rest = self.config.policy.steps - self.model.num_timesteps
        if rest > 0:
            self.model.learn(
                rest,
                callback=Exchange(self),
                log_interval=self.sync // rollout_size(self.config.policy),
                reset_num_timesteps=False,
                tb_log_name=self.run.name,
            )
            self.model.logger.close()
        self.save()
        self.around.beat(self.model.num_timesteps, "stopped" if self.around.stopping() else "done")

    @property
    def finished(self) -> bool:
        """True once the run has all its agent steps."""
        return self.model.num_timesteps >= self.config.policy.steps

    def _collect_initial(self) -> None:
        """Let the untrained policy act; its episodes count, its segments get the initial comparisons.

        Segments are cut at each exchange, so that memory does not grow with the number of comparisons: each time so
        many that, where no episode ends, every start is as likely as any other.
        """
        wanted, n = 2 * n_initial(self.config.label), 0
        obs = self.recorder.reset()
        while self.recorder.n_env_steps < self.start and not self.around.stopping():
            if self.config.policy.normalize_obs:
                assert isinstance(obs, np.ndarray)
                self.normaliser.obs_rms.update(obs)
                obs = self.normaliser.normalize_obs(obs)
            obs = self.recorder.step(self.model.predict(obs)[0])[0]  # type: ignore[arg-type]  # no tuple: Box or Discrete
            steps = self.model.num_timesteps = self.recorder.n_env_steps
            if steps % self.sync == 0 or steps >= self.start:
                n += self.store_segments(self._share(wanted, steps) - n, "initial")
        if n < 2 and not self.around.stopping():
            raise EnvError(self._too_few(n))
        self.around.beat(self.model.num_timesteps, "collected the untrained policy's segments")
        self.around.exchange()

    def _share(self, wanted: int, steps: int) -> int:
        """How many of the ``wanted`` segments should come from the first ``steps`` of the untrained policy."""
        assert self.config.env.segment_steps is not None
        before = (self.config.env.segment_steps - 1) * self.config.policy.n_envs  # no segment has ended yet
        if steps >= self.start:
            return wanted
        return round(wanted * (steps - before) / (self.start - before)) if steps > before else 0

    def _too_few(self, n: int) -> str:
        """Why the untrained policy left no pair of segments, and what to change."""
        length, n_envs = self.config.env.segment_steps, self.config.policy.n_envs
        if self.recorder.n_short:
            why = f"{self.recorder.n_short} of its episodes are shorter than that"
            mend = "a smaller --env.segment_steps"
        else:
            why = f"it makes {self.start // n_envs} steps in each of {n_envs} environments"
            mend = "a smaller --env.segment_steps or --policy.n_envs, or more --steps"
        return (
            f"{self.config.env.id}: the untrained policy leaves {n or 'no'} segment{'' if n == 1 else 's'} of {length} "
            f"steps ({why}), so there is nothing to compare; start a run with {mend}"
        )

    def store_segments(self, n: int, source: str) -> int:
        """Cut segments from the newest steps and write them, any true returns apart; returns how many there were."""
        steps = self.model.num_timesteps
        rng = rng_for(self.config.seed, Stream.SEGMENTS, steps)
        segments, truths = self.recorder.cut(n, rng, env_steps=steps, source=source)
        add_segments(self.db, self.run.id, segments, truths if self.truthful else None)
        prune_segments(self.db, self.run.id, keep=4 * max(self.config.query.pool, 2 * n_initial(self.config.label)))
        return len(segments)

    def save(self) -> None:
        """Write a checkpoint and drop those that are neither recent nor milestones."""
        meta = {"learner": self.config.policy.learner, "n_updates": self.model._n_updates}
        steps = self.model.num_timesteps
        save_checkpoint(self.db, self.run.id, checkpoint.pack(self.model, self.normaliser), env_steps=steps, meta=meta)
        stored = list_checkpoints(self.db, self.run.id)
        kept = milestones([c.env_steps for c in stored], self.config.policy.steps)
        prune_checkpoints(self.db, self.run.id, {stored[i].id for i in kept})

    def late_answers(self) -> str:
        """Whether the policy must wait for answers: how many are missing, in words, or an empty string."""
        max_lag = self.config.label.max_lag
        if not max_lag or not self.asks:
            return ""
        lag = answers_behind(self.config, self.model.num_timesteps, n_counted(self.db, self.run.id))
        return f"{lag} answers behind the schedule" if lag > max_lag else ""

    def late_reward(self) -> str:
        """Whether the policy must wait for a reward version: how old the newest is, in words, or an empty string."""
        if not self.asks:
            return ""
        age = self.model.num_timesteps - newest_fit(self.db, self.run.id)
        return f"the newest reward version is {age} steps old" if age > max_reward_age(self.config) else ""


class Exchange(BaseCallback):
    """What the rollout role does between rollouts, inside its one ``learn()`` call."""

    def __init__(self, role: RolloutRole) -> None:
        super().__init__()
        self.role = role
        self._synced = self._saved = -1

    def _on_training_start(self) -> None:
        self._synced = self._saved = self.num_timesteps

    def _on_rollout_start(self) -> None:
        role = self.role
        if self.num_timesteps - self._saved >= role.config.policy.checkpoint_every:
            role.save()
            self._saved = self.num_timesteps
        if role.reward is None:
            return
        synced = self._synced == self.num_timesteps  # versions appear between exchanges, not between rollouts
        while (reason := role.late_answers() or (synced and role.late_reward())) and not role.around.stopping():
            role.around.beat(self.num_timesteps, f"paused: {reason}")
            role.around.wait()
        if synced:
            role.reward.pin()
        self.logger.record("reward/version", role.reward.version)

    def _on_step(self) -> bool:
        return not self.role.around.stopping()

    def _on_rollout_end(self) -> None:
        role = self.role
        last = self.num_timesteps >= role.config.policy.steps  # the schedule ends there, whatever the pace
        if self.num_timesteps - self._synced < role.sync and not last:
            return
        self._synced = self.num_timesteps
        if role.learned:
            role.store_segments(role.config.query.segments_per_rollout, "policy")
        self._log_returns()
        role.around.beat(self.num_timesteps, "learning")
        role.around.exchange()

    def _log_returns(self) -> None:
        role = self.role
        truths = role.recorder.episode_returns if role.learned else [e["r"] for e in self.model.ep_info_buffer or []]
        values = {}
        if truths and role.truthful:
            values["true_return"] = float(np.mean(truths[-RECENT_EPISODES:]))
        if role.learned and self.model.ep_info_buffer:
            learned = [e["r"] for e in list(self.model.ep_info_buffer)[-RECENT_EPISODES:]]
            values["learned_return"] = float(np.mean(learned))
        if role.reward is not None:
            values["reward_version"] = float(role.reward.version)
        if role.recorder.n_short:
            values["short_episodes"] = float(role.recorder.n_short)
        logged = self.logger.name_to_value
        if "train/entropy" in logged:
            values["entropy"] = float(logged["train/entropy"])
        elif "train/entropy_loss" in logged:  # A2C's and PPO's name for minus the entropy
            values["entropy"] = -float(logged["train/entropy_loss"])
        if "true_return" in values:
            self.logger.record("true/return", values["true_return"])
        add_metrics(role.db, role.run.id, role.name, self.num_timesteps, values)
