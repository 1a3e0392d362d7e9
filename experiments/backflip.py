"""The paper's back-flip (section 3.2), taught by a judge that looks at whole clips as a person would.

    prefrl run backflip-hopper --label.oracle experiments.backflip:judge --steps 300000 --name flip
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

from prefrl.config import from_dict
from prefrl.evaluate import restore
from prefrl.oracle.teachers import Judged, ReturnStatistics, Teacher, compare
from prefrl.store.engine import Database
from prefrl.store.runs import get_run
from prefrl.types import Preference

if TYPE_CHECKING:  # the judge is imported by the oracle's process, which needs no torch
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecNormalize

HEIGHT, ANGLE = 0, 1  # of the torso, in the hopper's observation: metres, radians (forward is positive, unwrapped)
FLOOR = 0.45  # a torso lower than this lies on the floor or rolls over it
STANDING = 0.9  # and one higher than this, with less than 37 degrees of tilt, is upright
LANDED_STEPS = 25  # 0.2 s: who is upright for so long is not merely turning through


def turned(obs: NDArray[np.floating]) -> float:
    """Net backward turns from the first frame to the last; none for who lies on the floor most of the time.

    Net, since a hopper that bows backwards and comes up again has not turned.

    Args:
        obs: Observations, shape (T, 11).
    """
    if np.mean(obs[:, HEIGHT] < FLOOR) > 0.5:
        return 0.0
    return float(-(obs[-1, ANGLE] - obs[0, ANGLE]) / (2 * np.pi))


def upright(obs: NDArray[np.floating]) -> NDArray[np.bool_]:
    """At which steps the torso is up and not tilted, shape (T,)."""
    return np.asarray((np.cos(obs[:, ANGLE]) > 0.8) & (obs[:, HEIGHT] > STANDING))


def judge(turn: float = 0.1, height: float = 0.1) -> Teacher:
    """What the task's instructions say: the further backward turn, then the better landing, then the higher torso.

    Args:
        turn: Turns by which one clip must be ahead for a person to see it.
        height: The same for the mean height of the torso, in metres.
    """

    def teach(left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator) -> Preference:
        a, b = turned(left.obs), turned(right.obs)
        if abs(a - b) > turn:
            return compare(a, b)
        landed = [bool(upright(clip.obs)[-5:].all()) for clip in (left, right)]
        if landed[0] != landed[1]:
            return Preference.LEFT if landed[0] else Preference.RIGHT
        a, b = (float(clip.obs[:, HEIGHT].mean()) for clip in (left, right))
        return compare(a, b) if abs(a - b) > height else Preference.TIE

    return teach


def landed_flips(obs: NDArray[np.floating]) -> int:
    """Whole backward turns after which the hopper stood upright; ``obs`` is an episode, shape (T, 11)."""
    turns = -(obs[:, ANGLE] - obs[0, ANGLE]) / (2 * np.pi)
    steady = np.convolve(upright(obs), np.ones(LANDED_STEPS), mode="valid") == LANDED_STEPS
    return max(0, int(np.round(turns[LANDED_STEPS - 1 :][steady]).max(initial=0)))


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
                "net_turns": [round(turned(path), 2) for path in paths],
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
    """Let a policy act: the raw observations of each episode, (T, 11), and the first episode's simulator states."""
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
