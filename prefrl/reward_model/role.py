"""The reward role: proposes queries, fits the ensemble, publishes versions. It never sees the true reward."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from prefrl.config import FEWEST_HELD_OUT
from prefrl.errors import ConfigError
from prefrl.registry import find
from prefrl.reward_model.batches import WIDER, unlike
from prefrl.reward_model.calibration import DETAIL
from prefrl.reward_model.dataset import PreferenceDataset, stack_features, stack_steps
from prefrl.reward_model.ensemble import tensors_from_bytes, tensors_to_bytes
from prefrl.reward_model.fitting import Fitter
from prefrl.reward_model.held_out import ALARM, alarms, from_metrics, recent, to_metrics, window_to_metrics
from prefrl.reward_model.published import new_ensemble
from prefrl.reward_model.schedule import budget_of, held_out_scheduled, n_held_out, n_initial, n_scheduled
from prefrl.reward_model.selection import SELECTORS, Selector, at_random, by_logit, choose, draw_candidates
from prefrl.reward_model.spaces import Spaces
from prefrl.reward_model.watch import N_CURRENT, disagreement, draw_held_out, held_out_due, judge_held_out
from prefrl.rollout.pace import answers_behind, learning_starts, sync_steps
from prefrl.seeding import Stream, rng_for
from prefrl.settings import from_dict
from prefrl.store.clips import clip_states, last_failure
from prefrl.store.comparisons import n_counted, tail
from prefrl.store.engine import Database
from prefrl.store.held_out import HELD_OUT, held_out_pairs
from prefrl.store.metrics import add_event, add_metrics
from prefrl.store.queue import (
    asked_pairs,
    counts,
    expire,
    expire_skipped,
    expire_undrawable,
    n_undrawable,
    propose,
    still_answering,
)
from prefrl.store.retention import milestones
from prefrl.store.rewards import load_reward, newest_version, prune_rewards, publish, reward_versions
from prefrl.store.runs import Run
from prefrl.store.segments import load_segments, recent_segment_ids
from prefrl.store.workers import present_roles, workers


class RewardRole:
    """Learns the reward from the comparisons in the database and decides what to ask next.

    Args:
        db: The run's database.
        run: The run.
    """

    name = "reward"

    def __init__(self, db: Database, run: Run) -> None:
        self.db, self.run, self.config = db, run, from_dict(run.config)
        self.label, self.query = self.config.label, self.config.query
        self.people = self.label.oracle == "none"
        self.spaces = Spaces.from_dict(run.versions["spaces"])
        assert self.config.env.segment_steps is not None
        self.data = PreferenceDataset(self.spaces, self.config.env.segment_steps, self.config.reward.window)
        self.ensemble = new_ensemble(run)
        self.fitter = Fitter(self.ensemble, self.config.reward, self.config.seed)
        self.start = learning_starts(self.config)
        self.version, self.fitted_at, self.last_seq = newest_version(db, run.id), 0, 0
        if self.version:
            record, payload = load_reward(db, run.id)
            tensors = tensors_from_bytes(payload)
            self.ensemble.load(tensors)
            self.fitter.load(tensors)
            self.fitted_at, self.last_seq = record.env_steps, record.last_seq
        versions = reward_versions(db, run.id)
        self._evidence = [one for one in (from_metrics(v.metrics) for v in versions) if one.n]
        self._alarmed = bool(versions and versions[-1].metrics.get(ALARM, 0.0))
        self._expired_at = -1
        self.nothing_to_ask = ""  # why, in words

    def step(self) -> bool:
        """Ask what is due, or fit and publish what is due; False if nothing was."""
        env_steps = self._env_steps()
        self.fitted_at = min(self.fitted_at, env_steps)  # a rollout that died goes on from its last checkpoint
        if self._propose(env_steps) or self._fit(env_steps):
            return True
        self._check_hanging(env_steps)
        return False

    def waiting_for(self) -> str:
        """What is missing before the next version, in words."""
        first = f"the first comparisons: {n_counted(self.db, self.run.id)} of {n_initial(self.label)}"
        missing = "new rollouts" if self.version else first
        if self.version and self.nothing_to_ask:
            missing += f": {self.nothing_to_ask}"
        n = n_undrawable(self.db, self.run.id) if self.people else 0
        if not n:
            return missing
        return f"{missing}; clips of {n} pairs could not be drawn: {last_failure(self.db, self.run.id)}"

    def _env_steps(self) -> int:
        rows = [w for w in workers(self.db, self.run.id) if w.role == "rollout"]
        return max((w.env_steps or 0 for w in rows), default=0)

    def _propose(self, env_steps: int) -> bool:
        if env_steps < self.start:
            return False
        if env_steps != self._expired_at:
            expire(self.db, self.run.id, before_env_steps=env_steps - self.query.max_age)
            self._expired_at = env_steps
        if self.people:
            expire_undrawable(self.db, self.run.id)
        state = counts(self.db, self.run.id)
        n = self._missing(env_steps, state)
        if n <= 0:
            return False
        n_asked = sum(state.values())
        offer = functools.partial(propose, self.db, self.run.id, reward_version=self.version, env_steps=env_steps)
        held_out = self._choose_held_out(n, n_asked, env_steps) if self.version else []
        offer(held_out, purpose=HELD_OUT)  # before the others are chosen: no pair is asked twice
        pairs = self._choose(n - len(held_out), n_asked) if n > len(held_out) else []
        offer(pairs)
        return bool(held_out or pairs)

    def _choose_held_out(self, n: int, n_asked: int, env_steps: int) -> list[tuple[int, int]]:
        """Of the next ``n`` pairs to ask, those that are held out."""
        learned, learning = env_steps - self.start, self.config.policy.steps - self.start
        n = min(n, held_out_due(self.db, self.run.id, self.config, learned, learning))
        if n <= 0:
            return []
        now = recent_segment_ids(self.db, self.run.id, self.query.segments_per_rollout, source="policy")
        untrained = recent_segment_ids(self.db, self.run.id, 2 * n_initial(self.label), source="initial")
        pairs = self._drawable(now), self._drawable(untrained)
        rng = rng_for(self.config.seed, Stream.HELD_OUT, n_asked)
        return draw_held_out(*pairs, n, asked_pairs(self.db, self.run.id), rng)

    def _choose(self, n: int, n_asked: int) -> list[tuple[int, int]]:
        """At most ``n`` pairs of segments to ask next; where there is none, ``nothing_to_ask`` says why."""
        ids = self._askable()
        place = {id_: i for i, id_ in enumerate(ids)}
        asked = {
            (min(place[a], place[b]), max(place[a], place[b]))
            for a, b in asked_pairs(self.db, self.run.id)
            if a in place and b in place
        }
        rng = rng_for(self.config.seed, Stream.CANDIDATES, n_asked)
        candidates = draw_candidates(len(ids), n * self.query.candidate_factor, asked, rng)
        if not len(candidates):
            self.nothing_to_ask = f"all pairs of the {len(ids)} newest segments have been asked"
            return []
        used, candidates = _renumbered(candidates)  # thousands of images need not be looked at to ask about a few
        ids = [ids[i] for i in used]
        segments = load_segments(self.db, ids)
        obs, act = stack_features(self.spaces, [segments[i] for i in ids])
        diverse = self.query.batch == "diverse" and bool(self.version)  # before, as random as the paper's
        n_best = WIDER * n if diverse else n
        chosen = choose(self.query.selector, self._selector(), self.ensemble, obs, act, candidates, n_best)
        if diverse:
            chosen = unlike(self.ensemble, obs, act, chosen, n)
        reason = "" if chosen else f"query.selector {self.query.selector!r} chooses none of the candidate pairs"
        if reason and reason != self.nothing_to_ask:
            add_event(self.db, self.run.id, self.name, "query", f"{reason}; nothing is asked until it does")
        self.nothing_to_ask = reason
        return [(ids[a], ids[b]) for a, b in chosen]

    def _check_hanging(self, env_steps: int) -> None:
        """Refuse to wait for answers that cannot come.

        Raises:
            ConfigError: The policy waits for answers, no query is open, and there is nothing to ask.
        """
        state = counts(self.db, self.run.id)
        if not self.nothing_to_ask or state["proposed"] + state["leased"] + state["skipped"]:
            return
        n = n_counted(self.db, self.run.id)
        if self.version:
            hangs = 0 < (self.label.max_lag or 0) < answers_behind(self.config, env_steps, n)
        else:
            hangs = n < n_initial(self.label)
        if hangs:
            raise ConfigError(
                f"{self.nothing_to_ask}, and the policy waits for answers ({n} so far that can be learned from): "
                "check query.selector, and who answers (label.oracle)"
            )

    def _missing(self, env_steps: int, state: dict[str, int]) -> int:
        """How many queries to ask now, so that all that are open, answered, reach what is due."""
        steps = env_steps - self.start, self.config.policy.steps - self.start
        # what is held out is about what the policy does then: it can neither be asked ahead nor its place be taken
        ceiling = budget_of(self.label) - n_held_out(self.label) + held_out_scheduled(self.label, *steps)
        due = min(n_scheduled(self.label, *steps) + (self.label.ahead or 0), ceiling)
        asked = n_counted(self.db, self.run.id) + state["proposed"] + state["leased"]
        if not self.people:
            return due - asked - state["skipped"]
        # a person who skips one wants another; those skipped count again where they could exceed the budget
        if due > asked and due + state["skipped"] > budget_of(self.label):
            expire_skipped(self.db, self.run.id)
        return due - asked

    def _askable(self) -> list[int]:
        """The segments to make pairs of, oldest first."""
        pool = self.query.pool if self.version else 2 * n_initial(self.label)
        return sorted(self._drawable(recent_segment_ids(self.db, self.run.id, pool)))

    def _drawable(self, ids: list[int]) -> list[int]:
        """Those that can be shown: with people none whose clip could not be drawn."""
        if not self.people:
            return ids
        clips = clip_states(self.db, ids)
        return [i for i in ids if i not in clips or clips[i].state != "failed"]

    def _selector(self) -> Selector:
        if not self.version:  # an unfitted ensemble disagrees about nothing that matters
            return at_random
        if self.query.selector == "disagreement" and self.query.variance_of == "logit":
            return by_logit
        return find("selector", self.query.selector, SELECTORS)  # type: ignore[no-any-return]  # any plug-in

    def _fit(self, env_steps: int) -> bool:
        n_steps = self._due(env_steps)
        if not n_steps:
            return False
        rows = tail(self.db, self.run.id, self.data.last_seq)
        self.data.held_out = held_out_pairs(self.db, self.run.id)
        self.data.extend(rows, load_segments(self.db, self.data.missing(rows)))
        if not self.version and not self.spaces.n_stacked:
            first = recent_segment_ids(self.db, self.run.id, 10_000, source="initial")
            self.ensemble.set_input_statistics(*stack_steps(load_segments(self.db, first).values()))
        seen = self._watch() if self.version else {}
        report = self.fitter.fit(self.data, n_steps)
        metrics = {**report.metrics(), "n_comparisons": len(self.data), **seen}
        tensors = self.ensemble.to_tensors() | self.fitter.to_tensors()
        self.version = publish(
            self.db,
            self.run.id,
            tensors_to_bytes(tensors),
            last_seq=self.data.last_seq,
            env_steps=env_steps,
            metrics=metrics,
        )
        self.fitted_at, self.last_seq = env_steps, self.data.last_seq
        finite = {k: float(v) for k, v in metrics.items() if v == v and not k.startswith(DETAIL)}
        add_metrics(self.db, self.run.id, self.name, env_steps, finite)
        self._prune()
        return True

    def _watch(self) -> dict[str, float]:
        """What the version that the policy has been learning from says of the held-out answers since it was published.

        And how far its members are apart about what the policy does now.
        """
        noise = self.config.reward.noise
        now = load_segments(self.db, recent_segment_ids(self.db, self.run.id, N_CURRENT))
        new = judge_held_out(self.db, self.data.held_out_since(self.last_seq), self.ensemble, noise)
        if new.n:
            self._evidence.append(new)
        window = recent(self._evidence)
        before, self._alarmed = self._alarmed, alarms(window, self._alarmed)
        if self._alarmed and not before:
            add_event(self.db, self.run.id, self.name, "hacking", f"the reward may be exploited: {window.words}")
        told = {ALARM: float(self._alarmed)} if window.n >= FEWEST_HELD_OUT else {}
        apart = {"disagreement": disagreement(self.ensemble, list(now.values()), noise)}
        return {**apart, **to_metrics(new), **window_to_metrics(window), **told}

    def _due(self, env_steps: int) -> int:
        """Minibatches to take now: the pretraining's, those of an exchange, or none."""
        if not self.version:
            ready = env_steps >= self.start and n_counted(self.db, self.run.id) >= n_initial(self.label)
            return self.config.reward.pretrain_steps if ready else 0
        due = env_steps - self.fitted_at >= sync_steps(self.config.policy)
        if self._over(env_steps):
            due = (due or self._unfitted()) and not self._answers_coming()
        return self.config.reward.fit_steps if due else 0

    def _over(self, env_steps: int) -> bool:
        """Whether the rollout has all its steps, so that what is fitted now is fitted for the record."""
        return env_steps >= self.config.policy.steps > self.start

    def _unfitted(self) -> bool:
        """Whether there are answers that are in no version yet."""
        return bool(tail(self.db, self.run.id, self.last_seq, limit=1))

    def _answers_coming(self) -> bool:
        """Whether a living oracle, or people who are at it, are about to answer; others may never come."""
        if self.people:
            return still_answering(self.db, self.run.id)
        state = counts(self.db, self.run.id)
        return state["proposed"] + state["leased"] > 0 and "oracle" in present_roles(self.db, self.run.id)

    def _prune(self) -> None:
        """Keep the weights of the newest versions and of one in each twentieth of the run."""
        if self.version % 10 == 0:
            versions = reward_versions(self.db, self.run.id)
            kept = milestones([v.env_steps for v in versions], self.config.policy.steps)
            prune_rewards(self.db, self.run.id, {versions[i].version for i in kept})


def _renumbered(pairs: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """The numbers that occur in pairs (C, 2), in order, and the pairs with each number replaced by its place there."""
    used, place = np.unique(pairs, return_inverse=True)
    return used.tolist(), place.reshape(-1, 2)
