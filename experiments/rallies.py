"""Pong: does a policy keep the ball in play, and does it score?

    python -m experiments.rallies pong-0 pong-1 --games 10

Without online queries the paper's agent avoids losing points but does not score, in long volleys that repeat themselves
(section 3.3). The newest policy of each run plays whole games, its actions sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prefrl.errors import PrefrlError
from prefrl.evaluate import restore
from prefrl.parsing import whole
from prefrl.store.engine import Database
from prefrl.store.runs import get_run

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecEnv


@dataclass(frozen=True)
class Game:
    """One game of Pong, which ends when one side has 21 points.

    Attributes:
        rallies: Agent steps of each point, from the one before to itself, those until the ball is served among them.
        won: Points of the agent.
    """

    rallies: tuple[int, ...]
    won: int

    @property
    def score(self) -> int:
        """Points of the agent less those of the other side."""
        return 2 * self.won - len(self.rallies)


def play(model: OnPolicyAlgorithm, venv: VecEnv, n_games: int) -> list[Game]:
    """Let a policy play ``n_games`` in one environment whose reward is +1 or -1 for a point."""
    games: list[Game] = []
    rallies: list[int] = []
    won, steps = 0, 0
    obs: Any = venv.reset()
    while len(games) < n_games:
        obs, rewards, _, infos = venv.step(model.predict(obs)[0])
        steps += 1
        if rewards[0]:
            rallies.append(steps)
            won, steps = won + int(rewards[0] > 0), 0
        if infos[0].get("game_over"):
            games.append(Game(tuple(rallies), won))
            rallies, won, steps = [], 0, 0
    return games


def summary(games: list[Game]) -> dict[str, float]:
    """Means over games and points."""
    rallies = np.concatenate([game.rallies for game in games])
    return {
        "games": len(games),
        "score": float(np.mean([game.score for game in games])),
        "points_won": float(np.mean([game.won for game in games])),
        "steps_of_a_rally": float(rallies.mean()) if len(rallies) else float("nan"),
        "longest_rally": float(rallies.max(initial=0)),
    }


def main() -> None:
    """Let the newest policies of runs play, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="RUN")
    parser.add_argument("--db", default=os.environ.get("PREFRL_DB", "sqlite:///runs/prefrl.db"))
    parser.add_argument("--games", type=whole, default=10)
    args = parser.parse_args()
    try:
        with Database.open(args.db, readonly=True) as db:
            for name in args.names:
                stored, model, venv = restore(db, get_run(db, name))
                games = play(model, venv, args.games)
                venv.close()
                print(json.dumps({"run": name, "env_steps": stored.env_steps, **summary(games)}), flush=True)
    except PrefrlError as error:
        sys.exit(f"rallies: {error}")


if __name__ == "__main__":
    main()
