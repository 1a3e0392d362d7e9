"""Fitting the ensemble to comparisons: bootstrap, Adam, adaptive L2 (paper section 2.2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prefrl.config import RewardConfig
from prefrl.errors import RewardError
from prefrl.reward_model.bootstrap import bootstrap_weights, subset
from prefrl.reward_model.calibration import Agreed, Calibration, agreed, agreed_to_metrics, calibrate, to_metrics
from prefrl.reward_model.dataset import PreferenceDataset
from prefrl.reward_model.ensemble import STD_FLOOR, RewardEnsemble
from prefrl.reward_model.loss import log_preference, preference_loss
from prefrl.seeding import Stream

L2_EVERY = 50  # minibatches between two looks at the validation loss
L2_FACTOR = 1.2
L2_MIN, L2_MAX = 1e-7, 1.0
IMAGES_SEEN = 256  # comparisons over which a fit to images is looked at: all of them would take longer than the fit


@dataclass(frozen=True)
class FitReport:
    """Losses and accuracies after fitting, means over members; NaN where there is no data.

    Attributes:
        train_loss: Over the comparisons that are looked at: with images a sample of them.
        n_decided: Comparisons fitted to that are no ties.
        calibration: Of the mean prediction of the members that were not fitted to a decided comparison.
        agreed: The same prediction against each annotator.
    """

    train_loss: float
    oob_loss: float
    oob_accuracy: float
    l2: float
    n_decided: int
    n_ties: int
    calibration: Calibration
    agreed: Agreed

    def metrics(self) -> dict[str, float]:
        """Everything as flat numbers, for the reward version."""
        flat = {name: float(value) for name, value in asdict(self).items() if name not in ("calibration", "agreed")}
        return flat | to_metrics(self.calibration) | agreed_to_metrics(self.agreed)


@dataclass(frozen=True)
class _Look:
    """What the members say of comparisons.

    Attributes:
        which: The comparisons, (b,).
        weights: Bootstrap weights, (M, b).
        rewards: Of each step of their segments, (M, S, T).
        sums: Summed rewards of both segments, (M, b, 2).
    """

    which: NDArray[np.int64]
    weights: NDArray[np.int64]
    rewards: Tensor
    sums: Tensor


class Fitter:
    """Optimiser state and L2 coefficients of an ensemble; a member's step does not depend on the others.

    Args:
        ensemble: Fitted in place.
        config: Step size, batch size, noise, L2 rule.
        seed: Seed of the run, for the bootstrap and the minibatches.
    """

    def __init__(self, ensemble: RewardEnsemble, config: RewardConfig, seed: int) -> None:
        self.ensemble, self.config, self.seed = ensemble, config, seed
        self.parameters = list(ensemble.net.parameters())
        self.penalised = [p for name, p in ensemble.net.named_parameters() if not name.endswith("bias")]
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.learning_rate, fused=True)
        self.l2 = torch.full((config.n_members,), config.l2_initial, device=ensemble.device)
        self.n_steps = 0

    def fit(self, data: PreferenceDataset, n_steps: int) -> FitReport:
        """Take ``n_steps`` minibatches for each member, normalise them, and return how well the result fits.

        With images the normalisation and the report are over a sample of `IMAGES_SEEN` comparisons.

        Raises:
            RewardError: The loss stopped being finite; the weights are then as before the call.
        """
        if not len(data):  # every answer was taken back
            return self.report(data)
        weights = bootstrap_weights(self.seed, self.config.n_members, data.bags)  # (M, B)
        batches = self._batches(weights, n_steps)
        net = self.ensemble.net
        backup = {name: value.detach().clone() for name, value in net.state_dict().items()}  # batch statistics, too
        mu, targets = self._told(data)
        rng_state = torch.get_rng_state()
        torch.manual_seed((self.seed * 7919 + self.n_steps) % 2**63)  # dropout masks
        self.ensemble.train()
        for step, index in enumerate(batches, start=self.n_steps + 1):  # (M, b)
            loss = self._loss(self._sums(data, index), mu[index], targets[index]).mean(1)  # (M,)
            penalty = sum((p.square().flatten(1).sum(1) for p in self.penalised), torch.zeros_like(self.l2))
            self.optimizer.zero_grad()
            # summed, not averaged: each member's gradient is its own, whatever the number of members
            (loss + self.l2 * penalty).sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self.optimizer.step()
            if self.config.l2_initial and step % L2_EVERY == 0:
                self._adapt_l2(*self._losses(data, self._look(data, weights)))
        self.ensemble.eval()
        torch.set_rng_state(rng_state)
        self.n_steps += n_steps
        if not all(torch.isfinite(value).all() for value in net.state_dict().values()):
            net.load_state_dict(backup)
            raise RewardError("fitting the reward model gave weights that are not finite; lower reward.learning_rate")
        look = self._look(data, weights)
        self.ensemble.normalise(look.rewards)
        return self._report(data, look)

    def _batches(self, weights: NDArray[np.int64], n_steps: int) -> NDArray[np.int64]:
        """Minibatches of comparison numbers, (n_steps, M, b): each member shuffles its own bootstrap sample."""
        size = self.config.batch_size
        streams = []
        for member, counts in enumerate(weights):
            rng = np.random.default_rng([self.seed, Stream.BATCHES, member, self.n_steps])
            bag = np.repeat(np.arange(len(counts)), counts)
            if not len(bag):
                bag = np.arange(len(counts))  # one or two comparisons may all have weight 0
            n_epochs = -(-n_steps * size // len(bag))
            stream = np.concatenate([rng.permutation(bag) for _ in range(n_epochs)])
            streams.append(stream[: n_steps * size].reshape(n_steps, size))
        return np.stack(streams, axis=1)

    def _told(self, data: PreferenceDataset) -> tuple[Tensor, Tensor]:
        """The answers (B,), and the true returns (B, 2) on the scale of those so far, zero where none are fitted.

        Raises:
            RewardError: The objective is the true returns, and a comparison does not tell them.
        """
        mu, targets = torch.from_numpy(data.mu), torch.zeros(len(data), 2)
        if self.config.objective == "target":
            untold = np.flatnonzero(np.isnan(data.returns).any(1))
            if len(untold):
                raise RewardError(
                    f"comparison {data.seqs[untold[0]]} tells no true returns, which reward.objective target is "
                    "fitted to: start a run with the objective preference to learn from it"
                )
            returns = torch.from_numpy(data.returns)
            spread = returns.std(correction=0)
            targets = (returns - returns.mean()) / (spread if spread > STD_FLOOR else 1.0)
        return mu.to(self.ensemble.device), targets.to(self.ensemble.device)

    def _loss(self, sums: Tensor, mu: Tensor, targets: Tensor) -> Tensor:
        """Loss of each comparison: summed rewards of its segments (M, b, 2), answers and targets -> (M, b)."""
        if self.config.objective == "target":
            return (sums - targets).square().mean(-1)
        return preference_loss(sums[..., 0] - sums[..., 1], mu, self.config.noise)

    def _sums(self, data: PreferenceDataset, index: NDArray[np.int64]) -> Tensor:
        """Summed rewards of each member's own comparisons (M, b) -> (M, b, 2): both segments in one forward."""
        pairs = data.pairs[index]  # (M, b, 2)
        inputs = self.ensemble.inputs(data.obs[pairs], data.act[pairs])  # (M, b, 2, T, …)
        steps = self.ensemble.net(*(x.flatten(1, 3) for x in inputs))
        return steps.reshape(*pairs.shape, -1).sum(-1)  # type: ignore[no-any-return]  # nn.Module is untyped

    def logits(self, data: PreferenceDataset) -> Tensor:
        """Difference of summed rewards of every comparison, by every member: (M, B)."""
        sums = self._rewards(data, np.arange(len(data)))[1]
        return sums[..., 0] - sums[..., 1]

    def _rewards(self, data: PreferenceDataset, which: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Of some comparisons: rewards of their segments' steps (M, S, T), and the segments' sums (M, b, 2)."""
        rows, place = np.unique(data.pairs[which], return_inverse=True)
        rewards = self.ensemble.segment_rewards(data.obs[rows], data.act[rows])
        return rewards, rewards.sum(-1)[:, place.reshape(-1, 2)]

    def _look(self, data: PreferenceDataset, weights: NDArray[np.int64]) -> _Look:
        """Look at the comparisons, of images at a sample of them, in eval mode; leaves the mode as it is."""
        which = subset(data.seqs, IMAGES_SEEN) if data.spaces.n_stacked else np.arange(len(data))
        training = self.ensemble.training
        self.ensemble.eval()
        rewards, sums = self._rewards(data, which)
        self.ensemble.train(training)
        return _Look(which, weights[:, which], rewards, sums)

    def _losses(self, data: PreferenceDataset, look: _Look) -> tuple[Tensor, Tensor]:
        """Mean training loss and mean out-of-bag loss of each member, (M,) each; NaN without data."""
        mu, targets = self._told(data)
        loss = self._loss(look.sums, mu[look.which], targets[look.which])  # (M, b)
        w = torch.from_numpy(look.weights).to(loss.device)
        oob = w == 0
        return (loss * w).sum(1) / w.sum(1), (loss * oob).sum(1) / oob.sum(1)

    def _adapt_l2(self, train: Tensor, oob: Tensor) -> None:
        """Keep the validation loss between l2_low and l2_high times the training loss, member by member."""
        ratio = oob / train
        grow, shrink = ratio > self.config.l2_high, ratio < self.config.l2_low  # both False for NaN
        self.l2 = torch.where(grow, self.l2 * L2_FACTOR, torch.where(shrink, self.l2 / L2_FACTOR, self.l2))
        self.l2.clamp_(L2_MIN, L2_MAX)

    def report(self, data: PreferenceDataset) -> FitReport:
        """Losses and out-of-bag accuracy now; ties are in the losses, but not in the accuracy."""
        return self._report(data, self._look(data, bootstrap_weights(self.seed, self.config.n_members, data.bags)))

    def _report(self, data: PreferenceDataset, look: _Look) -> FitReport:
        train, oob = self._losses(data, look)
        logits = look.sums[..., 0] - look.sums[..., 1]
        z, mu = logits.cpu().numpy(), data.mu[look.which]
        decided = mu != 0.5
        held_out = (look.weights == 0) & decided
        right = ((z > 0) == (mu > 0.5)) & held_out
        some = held_out.any(0)  # (b,)
        p = log_preference(logits, self.config.noise).exp().cpu().numpy().astype(np.float64)
        predicted = np.where(held_out, p, 0.0)[:, some].sum(0) / held_out[:, some].sum(0)
        first = mu[some] > 0.5
        return FitReport(
            train_loss=float(train.nanmean()),
            oob_loss=float(oob.nanmean()),
            oob_accuracy=float(right.sum() / held_out.sum()) if held_out.any() else float("nan"),
            l2=float(self.l2.mean()),
            n_decided=int((data.mu != 0.5).sum()),
            n_ties=int((data.mu == 0.5).sum()),
            calibration=calibrate(predicted, first),
            agreed=agreed(predicted, first, [data.annotators[b] for b in look.which[some]]),
        )

    def to_tensors(self) -> dict[str, Tensor]:
        """Optimiser state, L2 coefficients and step count, by name."""
        tensors = {"fitter.l2": self.l2.cpu(), "fitter.n_steps": torch.tensor([self.n_steps])}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"fitter.adam.{i}.{name}": value.cpu().contiguous() for name, value in state.items()}
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the state from ``to_tensors``' names, so that a resumed run goes on as if never stopped."""
        self.l2 = tensors["fitter.l2"].to(self.ensemble.device)
        self.n_steps = int(tensors["fitter.n_steps"][0])
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith("fitter.adam."):
                _, _, i, name = key.split(".")
                state.setdefault(int(i), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
