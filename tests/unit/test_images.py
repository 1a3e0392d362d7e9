"""The reward of images: learned from what is seen and in which order, the same on every path, kept as single frames."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch

from prefrl.config import RewardConfig
from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.reward_model.batches import summaries, unlike
from prefrl.reward_model.bootstrap import bootstrap_weights
from prefrl.reward_model.convolutions import CONVOLUTIONS, refuse_net, sides, smallest
from prefrl.reward_model.dataset import PreferenceDataset, stack_features
from prefrl.reward_model.ensemble import RewardEnsemble, tensors_from_bytes, tensors_to_bytes
from prefrl.reward_model.fitting import IMAGES_SEEN, L2_EVERY, Fitter
from prefrl.reward_model.inference import stepwise
from prefrl.reward_model.nets import NETS, drop
from prefrl.reward_model.spaces import Spaces
from prefrl.reward_model.watch import disagreement
from prefrl.segments.frames import to_stacks
from prefrl.types import Preference, Segment
from tests.unit.images import SIZE, SPACES, STEPS, comparisons, row, segments

VECTORS = Spaces((3,), (2,))


def _config(**settings: object) -> RewardConfig:
    small = RewardConfig(net="cnn-small", dropout=0.5, output_std=0.05, batch_size=16)
    return dataclasses.replace(small, **settings)  # type: ignore[arg-type]


def _fitter(seed: int = 0, **settings: object) -> Fitter:
    config = _config(**settings)
    return Fitter(RewardEnsemble(SPACES, config, seed), config, seed)


def _accuracy(ensemble: RewardEnsemble, seed: int) -> float:
    """Share of pairs of new segments that the reward puts in the right order."""
    fresh, velocities = segments(90, seed + 50)
    sums = np.array([ensemble.reward(s.obs, s.act).sum() for s in fresh])
    first, second = np.nonzero(velocities[:, None] > velocities[None, :])
    return float((sums[first] > sums[second]).mean())


def _state(fitter: Fitter) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in fitter.ensemble.state_dict().items()}


# learning


@pytest.mark.parametrize("seed", [0, 1])
def test_what_moves_is_learned_from_200_answers(seed: int) -> None:
    fitter = _fitter(seed)
    report = fitter.fit(comparisons(200, seed), 120)
    assert report.oob_accuracy > 0.85
    assert _accuracy(fitter.ensemble, seed) > 0.9
    fresh, velocities = segments(60, seed + 70)
    learned = [fitter.ensemble.reward(s.obs, s.act).mean() for s in fresh]
    backwards = [fitter.ensemble.reward(s.obs[::-1, ::-1], s.act).mean() for s in fresh]  # frames in reverse
    assert np.corrcoef(learned, velocities)[0, 1] > 0.8
    assert np.corrcoef(backwards, velocities)[0, 1] < -0.8, "the order of the frames is what tells"


def test_nothing_is_learned_from_shuffled_answers() -> None:
    fitter = _fitter()
    report = fitter.fit(comparisons(200, 0, shuffled=True), 100)
    assert report.oob_accuracy == pytest.approx(0.5, abs=0.12)
    assert _accuracy(fitter.ensemble, 0) == pytest.approx(0.5, abs=0.15)


# one layout, one path


@pytest.mark.parametrize(("net", "size"), [("cnn", 84), ("cnn-small", 42)])
def test_frames_are_rewarded_the_same_bit_for_bit_as_kept_rows_and_as_stacks(net: str, size: int) -> None:
    spaces = Spaces((4, size, size), (), n_actions=6)
    ensemble = RewardEnsemble(spaces, _config(net=net), 0)
    frames = np.random.default_rng(0).integers(0, 256, (3, 28, size, size), dtype=np.uint8)
    parts = [Segment(to_stacks(f, 4), np.zeros(25, np.int64)) for f in frames]
    obs, act = stack_features(spaces, parts)
    assert obs.shape == (3, 28, size, size)
    assert obs.dtype == torch.uint8
    assert act.shape == (3, 25, 0)
    kept = ensemble.segment_rewards(obs, act)
    for i, part in enumerate(parts):
        assert torch.equal(ensemble.member_rewards(part.obs, part.act), kept[:, i])
    ensemble.normalise(kept)
    reward = stepwise(ensemble)
    sixteen = np.ascontiguousarray(parts[1].obs[:16])  # of as many environments
    assert reward(sixteen, np.zeros(16, np.int64)).tolist() == ensemble.reward(parts[1].obs, parts[1].act)[:16].tolist()
    one = ensemble.member_rewards(sixteen[:1], np.zeros(1, np.int64))  # products of few rows are rounded otherwise
    torch.testing.assert_close(one, kept[:, 1, :1], rtol=0, atol=1e-6)
    assert reward(sixteen[:0], np.zeros(0, np.int64)).shape == (0,)


def test_what_the_nets_see_by_hand() -> None:
    """Two segments of two steps, two frames in a stack: every step its own window, divided by 255."""
    spaces = Spaces((2, 1, 1), (), n_actions=2)
    ensemble = RewardEnsemble(spaces, _config(net="tests.unit.test_images:pixels"), 0)
    obs = torch.tensor([[0, 51, 102], [255, 204, 0]], dtype=torch.uint8)[..., None, None]
    seen, _ = ensemble.inputs(obs, torch.zeros(2, 2, 0))
    expected = torch.tensor([[[0.0, 0.2], [0.2, 0.4]], [[1.0, 0.8], [0.8, 0.0]]])
    torch.testing.assert_close(seen[..., 0, 0], expected)


def pixels(
    n_members: int, obs_dim: tuple[int, int, int], act_dim: int, *, seed: int, dropout: float
) -> torch.nn.Module:
    """A net plug-in for images: the newest frame's mean."""
    assert (len(obs_dim), act_dim) == (3, 0)

    class Newest(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(1.0, n_members + 1))

        def forward(self, obs: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
            return obs[:, :, -1].mean((-1, -2)) * self.weight[:, None]

    return Newest()


def test_the_action_is_not_seen() -> None:
    ensemble, (part, *_) = RewardEnsemble(SPACES, _config(), 0), segments(1, 0)[0]
    a, b = (ensemble.reward(part.obs, np.full(STEPS, action)) for action in (0, 2))
    assert a.tolist() == b.tolist()


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.zeros((5, SIZE, SIZE, 4), np.uint8), "takes observations of shape (4, 36, 36), but was given (36, 36, 4)"),
        (np.zeros((5, 3, SIZE, SIZE), np.uint8), "takes observations of shape (4, 36, 36), but was given (3, 36, 36)"),
        (np.zeros((5, 4, 42, 42), np.uint8), "takes observations of shape (4, 36, 36), but was given (4, 42, 42)"),
        (np.zeros((5, 4, SIZE, SIZE), np.float32), "oldest first, height, width), but was given float32"),
        (np.zeros((5, SIZE, SIZE), np.uint8), "takes observations of shape (4, 36, 36), but was given (36, 36)"),
    ],
)
def test_another_layout_is_refused_on_every_path(obs: np.ndarray, message: str) -> None:
    act = np.zeros(5, np.int64)
    ensemble = RewardEnsemble(SPACES, _config(), 0)
    with pytest.raises(RewardError, match=re.escape(message)):
        stepwise(ensemble)(obs, act)
    with pytest.raises(RewardError, match=re.escape(message)):
        PreferenceDataset(SPACES, 5).extend([row(1, 0, 1, Preference.LEFT)], dict.fromkeys((0, 1), Segment(obs, act)))


def test_stacks_that_do_not_slide_are_refused() -> None:
    obs = np.random.default_rng(0).integers(0, 256, (5, 4, SIZE, SIZE), dtype=np.uint8)
    with pytest.raises(DataError, match="moved on by one"):
        stack_features(SPACES, [Segment(obs, np.zeros(5, np.int64))])


def test_the_layout_is_in_the_record_of_a_run_and_that_of_vectors_is_as_it_was() -> None:
    values = json.loads(json.dumps(SPACES.to_dict()))
    assert values["layout"] == "uint8 frames, the oldest first, height, width"
    assert Spaces.from_dict(values) == SPACES
    with pytest.raises(RewardError, match="in the layout 'height, width, frames', but this prefrl knows images as"):
        Spaces.from_dict({**values, "layout": "height, width, frames"})
    old = {"obs_shape": [3], "act_shape": [2], "n_actions": None}
    assert VECTORS.to_dict() == old
    assert Spaces.from_dict(old) == VECTORS


def test_the_stored_weights_of_vectors_have_the_names_that_they_had() -> None:
    names = RewardEnsemble(VECTORS, RewardConfig(), 0).to_tensors().keys()
    statistics = {"obs_mean", "obs_std", "act_mean", "act_std", "member_mean", "member_std", "scale"}
    layers = {f"net.layers.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")}
    assert names == {f"ensemble.{name}" for name in statistics | layers}


# the nets


def test_architecture_of_the_paper() -> None:
    net = NETS["cnn"](3, (4, 84, 84), 0, seed=0, dropout=0.5)
    assert [tuple(layer.weight.shape) for layer in net.convolutions] == [
        (3, 16, 4, 7, 7),
        (3, 16, 16, 5, 5),
        (3, 16, 16, 3, 3),
        (3, 16, 16, 3, 3),
    ]
    assert [layer.stride for layer in net.convolutions] == [3, 2, 1, 1]
    assert [tuple(layer.weight.shape) for layer in net.layers] == [(3, 16 * 7 * 7, 64), (3, 64, 1)]
    assert sides("cnn", 84) == [84, 26, 11, 9, 7]
    assert sides("cnn-small", 42) == [42, 13, 6, 4, 2]


@pytest.mark.parametrize("training", [True, False])
def test_equals_torchs_own_layers(training: bool) -> None:
    net = NETS["cnn-small"](2, (4, SIZE, SIZE), 0, seed=3, dropout=0.0).train(training)
    obs = torch.rand(2, 5, 4, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    expected = []
    for m in range(2):
        x = obs[m]
        for layer, (size, stride) in zip(net.convolutions, CONVOLUTIONS["cnn-small"], strict=True):
            convolution = torch.nn.Conv2d(x.shape[1], 16, size, stride, bias=False)
            norm = torch.nn.BatchNorm2d(16).train(training)
            convolution.weight = torch.nn.Parameter(layer.weight[m].detach())
            x = torch.nn.functional.leaky_relu(norm(convolution(x)), 0.01)
        x = x.flatten(1)
        x = torch.nn.functional.leaky_relu(x @ net.layers[0].weight[m] + net.layers[0].bias[m], 0.01)
        expected.append((x @ net.layers[1].weight[m] + net.layers[1].bias[m])[:, 0])
    torch.testing.assert_close(net(obs, torch.zeros(2, 5, 0)), torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_a_member_starts_and_steps_the_same_whatever_the_number_of_members() -> None:
    changes = []
    for n_members in (1, 4):
        fitter = _fitter(n_members=n_members, dropout=0.0)
        fitter.ensemble.double()  # Adam's first step is the gradient's sign, which rounding may turn
        fitter.ensemble.inputs = lambda obs, act, e=fitter.ensemble: (  # type: ignore[method-assign]
            RewardEnsemble.inputs(e, obs, act)[0].double(),
            act.double(),
        )
        before = [value[0].clone() for value in fitter.ensemble.net.state_dict().values()]
        fitter.fit(comparisons(40, 0), 2)
        after = [value[0] for value in fitter.ensemble.net.state_dict().values()]
        changes.append((torch.cat([x.flatten() for x in before]), torch.cat([x.flatten() for x in after])))
    (start, end), (other_start, other_end) = changes
    assert torch.equal(start, other_start)
    assert float((end - other_end).norm() / (end - start).norm()) < 1e-5


def test_the_input_of_a_member_moves_its_own_statistics_alone() -> None:
    net = NETS["cnn-small"](3, (4, SIZE, SIZE), 0, seed=0, dropout=0.0)
    obs, act = torch.rand(3, 6, 4, SIZE, SIZE), torch.zeros(3, 6, 0)
    twin = NETS["cnn-small"](3, (4, SIZE, SIZE), 0, seed=0, dropout=0.0)
    other = obs.clone()
    other[1] *= 0.3
    net(obs, act)
    twin(other, act)
    for mine, its in zip(net.buffers(), twin.buffers(), strict=True):
        assert torch.equal(mine[[0, 2]], its[[0, 2]])
        assert not torch.equal(mine[1], its[1])


@pytest.mark.parametrize("p", [0.001, 0.25, 0.5, 0.99])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dropout_keeps_the_share_and_the_mean(p: float, layout: torch.memory_format) -> None:
    x = torch.ones(20, 16, 13, 13).contiguous(memory_format=layout)
    y = drop(x, p)
    kept = round((1 - p) * 256) / 256
    n = x.numel()
    assert float((y != 0).float().mean()) == pytest.approx(kept, abs=5 * math.sqrt(kept * (1 - kept) / n) + 1e-9)
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / kept))
    if p == 0.5:
        zero = (y == 0).float()
        for axis in (0, 1, 2, 3):  # in no pattern
            a, b = zero.narrow(axis, 0, zero.shape[axis] - 1), zero.narrow(axis, 1, zero.shape[axis] - 1)
            assert float((a * b).mean()) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("net", "spaces", "message"),
    [
        ("mlp", SPACES, "reward.net is mlp, which takes no images, but the observations are of shape (4, 36, 36)"),
        ("cnn", VECTORS, "reward.net is cnn, which takes images, but the observations have the shape (3,): use mlp"),
        (
            "cnn",
            Spaces((4, 42, 84), (), 3),
            "takes images of 43 x 43 pixels or more, but the observations are of shape",
        ),
        ("cnn", Spaces((4, 42, 84), (), 3), "use cnn-small (35 or more) or larger frames"),
        ("cnn-small", Spaces((4, 34, 84), (), 3), "takes images of 35 x 35 pixels or more"),
    ],
)
def test_a_net_that_does_not_fit_is_refused_with_what_does(net: str, spaces: Spaces, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        refuse_net(net, spaces)
    with pytest.raises(ConfigError, match=re.escape(message)):
        RewardEnsemble(spaces, _config(net=net), 0)


@pytest.mark.parametrize("net", ["cnn", "cnn-small"])
def test_the_smallest_image_just_fits(net: str) -> None:
    size = smallest(net)
    assert sides(net, size)[-1] == 1
    assert min(sides(net, size - 1)) < 1
    assert NETS[net](1, (4, size, size), 0, seed=0, dropout=0.0)(torch.rand(1, 2, 4, size, size), None).shape == (1, 2)


# batch norm


def test_inference_never_changes_the_batch_statistics_and_fitting_does() -> None:
    fitter, data = _fitter(), comparisons(60, 0)
    fresh = _state(fitter)
    fitter.fit(data, 5)
    before = _state(fitter)
    moved = [name for name in before if "running" in name]
    assert moved
    assert not any(torch.equal(before[name], fresh[name]) for name in moved)
    part = segments(1, 3)[0][0]
    first = fitter.ensemble.reward(part.obs, part.act)
    bright = np.full_like(part.obs, 255)
    fitter.ensemble.reward(bright, part.act)
    fitter.ensemble.member_rewards(bright, part.act)
    stepwise(fitter.ensemble)(bright, part.act)
    fitter.logits(data)
    fitter.report(data)
    disagreement(fitter.ensemble, segments(4, 4)[0], 0.1)
    unlike(fitter.ensemble, *stack_features(SPACES, segments(4, 4)[0]), [(0, 1), (2, 3), (0, 2)], 2)
    assert all(torch.equal(value, before[name]) for name, value in fitter.ensemble.state_dict().items())
    assert fitter.ensemble.reward(part.obs, part.act).tolist() == first.tolist()


def test_a_fit_looks_at_its_losses_without_changing_the_batch_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """With L2 and without, the same minibatches: only what L2 itself does may differ, and at first it does nothing."""
    fitter, other = _fitter(l2_initial=1e-3), _fitter(l2_initial=1e-3)
    monkeypatch.setattr(other, "_adapt_l2", lambda train, oob: None)
    looks: list[int] = []
    monkeypatch.setattr(fitter, "_adapt_l2", lambda train, oob: looks.append(1))
    monkeypatch.setattr("prefrl.reward_model.fitting.L2_EVERY", 2)
    fitter.fit(comparisons(40, 0), 4)
    monkeypatch.setattr("prefrl.reward_model.fitting.L2_EVERY", 1000)
    other.fit(comparisons(40, 0), 4)
    assert len(looks) == 2
    assert all(torch.equal(a, b) for a, b in zip(_state(fitter).values(), _state(other).values(), strict=True))


def test_a_fit_that_fails_takes_the_batch_statistics_back() -> None:
    fitter, data = _fitter(), comparisons(40, 0)
    fitter.fit(data, 2)
    before = _state(fitter)
    fitter.optimizer.param_groups[0]["lr"] = 1e38
    with pytest.raises(RewardError, match="not finite"):
        fitter.fit(data, 5)
    assert all(torch.equal(value, before[name]) for name, value in fitter.ensemble.state_dict().items())
    assert not fitter.ensemble.training


def test_saving_and_resuming_goes_on_bit_for_bit() -> None:
    data, through, resumed = comparisons(60, 0), _fitter(), _fitter()
    through.fit(data, 4)
    tensors = tensors_from_bytes(tensors_to_bytes(through.ensemble.to_tensors() | through.to_tensors()))
    resumed.ensemble.load(tensors)
    resumed.load(tensors)
    through.fit(data, 4)
    resumed.fit(data, 4)
    assert all(torch.equal(a, b) for a, b in zip(_state(through).values(), _state(resumed).values(), strict=True))


# bounded work and memory


def test_memory_is_that_of_single_frames_each_once() -> None:
    data = comparisons(150, 0)
    n_segments = len({i for r in data.rows for i in (r.segment_1, r.segment_2)})
    assert data.obs.nbytes == n_segments * (STEPS + 3) * SIZE * SIZE
    assert data.obs.dtype == torch.uint8
    assert data.act.nbytes == 0


def test_a_few_comparisons_are_looked_at_the_same_ones_for_as_long_as_they_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prefrl.reward_model.fitting.IMAGES_SEEN", 20)
    data, fitter = comparisons(100, 0), _fitter()
    look = fitter._look(data, bootstrap_weights(0, 3, data.bags))
    assert len(set(look.which.tolist())) == 20
    assert look.sums.shape == (3, 20, 2)
    all_sums = fitter._rewards(data, np.arange(100))[1]
    torch.testing.assert_close(look.sums, all_sums[:, look.which], rtol=1e-4, atol=1e-5)
    fewer = comparisons(100, 0, window=50)  # the newer half
    again = fitter._look(fewer, bootstrap_weights(0, 3, fewer.bags))
    kept = [seq for seq in data.seqs[look.which] if seq > 50]
    assert set(kept) <= set(fewer.seqs[again.which].tolist())
    report = fitter.report(data)
    assert report.n_decided == 100, "what was fitted to, not what was looked at"
    assert math.isfinite(report.oob_loss)
    assert IMAGES_SEEN == 256


def test_the_l2_rule_looks_every_so_many_minibatches_of_the_run_in_fits_however_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitter, data, looks = _fitter(), comparisons(20, 0), []
    monkeypatch.setattr(fitter, "_adapt_l2", lambda train, oob: looks.append(fitter.n_steps))
    for _ in range(2 * L2_EVERY // 20):
        fitter.fit(data, 20)
    assert looks == [40, 80], "in the fits that begin there: at 50 and at 100"


def test_pairs_are_told_apart_by_each_pixels_mean_and_spread() -> None:
    ensemble = RewardEnsemble(Spaces((2, 1, 1), (), 2), _config(net="tests.unit.test_images:pixels"), 0)
    obs = torch.tensor([[0, 102, 204]], dtype=torch.uint8)[..., None, None]
    found = summaries(ensemble, obs, torch.zeros(1, 2, 0))
    torch.testing.assert_close(found, torch.tensor([[0.4, math.sqrt(0.32 / 3)]], dtype=torch.float64))
    parts = segments(3, 0)[0]
    obs, act = stack_features(SPACES, [*parts, parts[0], parts[1]])  # the last two are the first two again
    assert unlike(RewardEnsemble(SPACES, _config(), 0), obs, act, [(0, 1), (3, 4), (0, 2)], 2) == [(0, 1), (0, 2)]
