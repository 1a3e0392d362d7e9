"""The paper's back-flip (section 3.2), taught by a judge that looks at whole clips as a person would.

    prefrl run backflip-hopper --label.oracle experiments.backflip:judge --name flip  # settings: experiments/README.md
    python -m experiments.backflip flip --video flip.mp4

The judge is an oracle of one's own: no reward of single steps exists anywhere. The second command lets the
policy act in fresh episodes and counts the back-flips that it lands.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prefrl.evaluate import restore
from prefrl.oracle.teachers import Judged, ReturnStatistics, Teacher, compare
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.runs import get_run
from prefrl.types import Preference

if TYPE_CHECKING:  # the judge is imported by the oracle's process, which needs no torch
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecNormalize

BODY = np.tri(4) * [1, -1, -1, -1]  # torso, thigh, leg and foot: their angles from the torso's and the three joints'
# in metres: half of the torso's length, thigh, leg, and the foot's ends from the ankle
TORSO, THIGH, LEG, HEEL, TOE = 0.2, 0.45, 0.5, 0.13, 0.26
DOWN = 0.15  # m: a head, hip or knee lower than this is on the floor, or about to be
FLIGHT = 0.1  # m: whose lowest point is higher than this is in the air; limbs are as thick as 0.06
STANDING = 0.9  # m: a torso higher than this, with less than 37 degrees of tilt, is upright
ROUND = 0.25  # turns: a part that lacks less than this of a whole turn has come round
LANDED_STEPS = 25  # 0.2 s: who is upright for so long is not merely turning through


def angles(obs: NDArray[np.floating]) -> NDArray[np.float64]:
    """How far torso, thigh, leg and foot have turned backwards since the first frame, in turns: (T, 13) -> (T, 4)."""
    turns: NDArray[np.float64] = obs[:, 1:5] @ BODY.T / (2 * np.pi)
    return turns[0] - turns


def heights(obs: NDArray[np.floating]) -> NDArray[np.float64]:
    """Of head, hip, knee, ankle, heel and toe, in metres: (T, 13) -> (T, 6)."""
    pitch = (obs[:, 1:5] @ BODY.T).T
    (torso, thigh, leg, _), foot = np.cos(pitch), np.sin(pitch[3])
    hip = obs[:, 0] - TORSO * torso
    knee = hip - THIGH * thigh
    ankle = knee - LEG * leg
    return np.column_stack([obs[:, 0] + TORSO * torso, hip, knee, ankle, ankle + HEEL * foot, ankle - TOE * foot])


def upright(obs: NDArray[np.floating]) -> NDArray[np.bool_]:
    """At which steps the torso is up and not tilted, shape (T,)."""
    return np.asarray((np.cos(obs[:, 1]) > 0.8) & (obs[:, 0] > STANDING))


def turned(obs: NDArray[np.floating]) -> NDArray[np.float64]:
    """Backward turns of torso, thigh, leg and foot from the first frame to the last, in the air: (4,).

    Turning on the foot counts a quarter; turning back counts wherever it is.

    Args:
        obs: Observations, shape (T, 13).
    """
    steps = np.diff(angles(obs), axis=0)  # (T - 1, 4)
    counts = np.where(heights(obs)[1:].min(1) > FLIGHT, 1.0, 0.25)
    return np.asarray(np.minimum(steps.sum(0), counts @ steps))


def before_fall(obs: NDArray[np.floating]) -> NDArray[np.floating]:
    """The first frames, up to the one in which head, hip or knee is on the floor; at least one."""
    fallen = heights(obs)[:, :3].min(1) < DOWN
    return obs[: max(1, int(fallen.argmax()))] if fallen.any() else obs


def come_round(obs: NDArray[np.floating], turns: int = 1) -> NDArray[np.bool_]:
    """At which steps it is upright and its whole body has turned so often since the first frame, shape (T,)."""
    return np.asarray(upright(obs) & (np.abs(angles(obs) - turns) < ROUND).all(1))


def score(obs: NDArray[np.floating], landing: float = 1.5) -> float:
    """How near a clip comes to a landed back-flip: the turn up to one whole, then how long it is upright after it.

    What comes after a fall counts for nothing.
    """
    seen = before_fall(obs)
    far = 1 - np.abs(1 - turned(seen))  # who turns further than once around comes away from it
    return float(far.mean() + landing * come_round(seen).sum() / len(obs))


def judge(visible: float = 0.03) -> Teacher:
    """The clip that comes nearer to a landed back-flip is preferred.

    Args:
        visible: By how many turns one clip must be ahead for a person to see it; all else is a tie.
    """

    def teach(left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator) -> Preference:
        a, b = score(left.obs), score(right.obs)
        return compare(a, b) if abs(a - b) > visible else Preference.TIE

    return teach


def landed_flips(obs: NDArray[np.floating]) -> int:
    """Whole backward turns of the whole body, landed on the foot before any fall; ``obs`` is an episode, (T, 13).

    Landed means upright for 0.2 s, with the foot on the floor at some time in it.
    """
    seen = before_fall(obs)
    on_foot = heights(seen).min(1) < FLIGHT
    for turns in range(int(angles(seen).min(1).max() + ROUND), 0, -1):
        up = come_round(seen, turns)
        for start in range(len(seen) - LANDED_STEPS + 1):
            window = slice(start, start + LANDED_STEPS)
            if up[window].all() and on_foot[window].any():
                return turns
    return 0


def main() -> None:
    """Let the newest policy of a run act, count its flips, and film it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the run")
    parser.add_argument("--db", default=os.environ.get("PREFRL_DB", "sqlite:///runs/prefrl.db"))
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--video", type=Path, help="film the first episode, as .mp4")
    args = parser.parse_args()
    with Database.open(args.db, readonly=True) as db:
        run = get_run(db, args.name)
        stored, model, venv = restore(db, run)
    paths, film = play(model, venv, args.episodes)
    venv.close()
    print(
        json.dumps(
            {
                "env_steps": stored.env_steps,
                "landed_flips": [landed_flips(path) for path in paths],
                "turns": [round(float(angles(before_fall(path)).min(1).max()), 2) for path in paths],
                "upright_at_the_end": [bool(upright(path)[-1]) for path in paths],
            }
        )
    )
    if args.video:
        from prefrl.segments.render import ClipRenderer, fps_of
        from prefrl.segments.video import encode_clip

        env = from_dict(run.config).env
        renderer = ClipRenderer(env.id, env.kwargs)
        args.video.write_bytes(encode_clip(renderer.frames(film), fps_of(env.id, env.kwargs)))
        renderer.close()


def play(
    model: OnPolicyAlgorithm, venv: VecNormalize, n_episodes: int
) -> tuple[list[NDArray[np.floating]], NDArray[np.float64]]:
    """Let a policy act: the raw observations of each episode, (T, 13), and the first episode's simulator states."""
    paths: list[NDArray[np.floating]] = []
    film: list[NDArray[np.float64]] = []
    obs: Any = venv.reset()
    while len(paths) < n_episodes:
        seen, done = [], False
        while not done:
            seen.append(np.asarray(venv.get_original_obs())[0])
            obs, _, dones, infos = venv.step(model.predict(obs, deterministic=True)[0])
            done = bool(dones[0])
            if not paths:
                film.append(infos[0]["state"])
        paths.append(np.stack(seen))
    return paths, np.stack(film)


if __name__ == "__main__":
    main()
