"""The convolutions of the reward nets for images, as plain data; without torch, which takes seconds to import."""

from __future__ import annotations

from prefrl.errors import ConfigError
from prefrl.reward_model.spaces import Spaces

FILTERS = 16  # of each layer (paper, appendix A.2)

# Side and stride of each layer's square filters: the paper's, and one for frames of a quarter of the pixels.
CONVOLUTIONS: dict[str, tuple[tuple[int, int], ...]] = {
    "cnn": ((7, 3), (5, 2), (3, 1), (3, 1)),
    "cnn-small": ((5, 3), (3, 2), (3, 1), (3, 1)),
}


def sides(net: str, size: int) -> list[int]:
    """Pixels along one side of an image, and of what each layer makes of it; not above 0 where it is too small."""
    found = [size]
    for filter_size, stride in CONVOLUTIONS[net]:
        found.append((found[-1] - filter_size) // stride + 1)
    return found


def refuse_net(net: str, spaces: Spaces) -> None:
    """Refuse a net that ships with prefrl and cannot take these observations.

    Raises:
        ConfigError: It is for images and these are none, the other way round, or they are too small; says what fits.
    """
    if net == "mlp" and spaces.n_stacked:
        raise ConfigError(
            f"reward.net is mlp, which takes no images, but the observations are {spaces.layout}: use cnn or cnn-small"
        )
    if net not in CONVOLUTIONS:
        return
    if not spaces.n_stacked:
        raise ConfigError(
            f"reward.net is {net}, which takes images, but the observations have the shape {spaces.obs_shape}: use mlp"
        )
    if min(spaces.obs_shape[1:]) < smallest(net):
        smaller = min(CONVOLUTIONS, key=smallest)
        mend = (
            "use larger frames" if net == smaller else f"use {smaller} ({smallest(smaller)} or more) or larger frames"
        )
        raise ConfigError(
            f"reward.net is {net}, which takes images of {smallest(net)} x {smallest(net)} pixels or more, but the "
            f"observations are {spaces.layout}: {mend}"
        )


def smallest(net: str) -> int:
    """Pixels along the shorter side of the smallest image of which every layer makes something."""
    return next(size for size in range(1, 1000) if min(sides(net, size)) > 0)
