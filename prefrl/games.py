"""The paper's Atari games as plain data: names, where the score stands, what people are asked to look for."""

from __future__ import annotations

from dataclasses import dataclass

Box = tuple[int, int, int, int]  # rows y0 to y1 and columns x0 to x1 of the 210 x 160 screen, the upper bounds excluded


@dataclass(frozen=True)
class Game:
    """One game of the paper (section 3.1.2, appendix A.2).

    Attributes:
        name: What people type, e.g. ``beam-rider``.
        rom: Its name in the Arcade Learning Environment, e.g. ``BeamRider`` of ``ALE/BeamRider-v5``.
        score_boxes: What is painted black for the policy and the reward model: the score; the paper names BeamRider's
            count of ships and Enduro's speedometer, too. It gives no pixels: these are those of the package seals.
        instructions: What an annotator is asked to look for.
        end_penalty: Whether the oracle sees -1 where a game ends (all games but Pong).
    """

    name: str
    rom: str
    score_boxes: tuple[Box, ...]
    instructions: str
    end_penalty: bool = True


_ALL = (
    Game(
        name="beam-rider",
        rom="BeamRider",
        score_boxes=((5, 20, 45, 120), (28, 40, 15, 40)),
        instructions="Prefer the clip in which you shoot more enemies. Being shot is bad; after it, a clip counts as "
        "average.",
    ),
    Game(
        name="breakout",
        rom="Breakout",
        score_boxes=((0, 16, 35, 80),),
        instructions="Prefer the clip in which more bricks are hit. Losing the ball is bad; after it, a clip counts as "
        "average.",
    ),
    Game(
        name="enduro",
        rom="Enduro",
        score_boxes=((163, 173, 55, 110), (177, 188, 68, 107)),
        instructions="Prefer the clip in which you pass more cars; being passed is bad.",
    ),
    Game(
        name="pong",
        rom="Pong",
        score_boxes=((0, 24, 0, 160),),
        instructions="You play the green paddle on the right. Prefer the clip in which the ball gets past the other "
        "paddle; letting it past yours is bad.",
        end_penalty=False,
    ),
    Game(
        name="qbert",
        rom="Qbert",
        score_boxes=((6, 15, 33, 71),),
        instructions="Prefer the clip in which more blocks change to the colour wanted. Jumping off, or touching an "
        "enemy, is bad; after it, a clip counts as average.",
    ),
    Game(
        name="seaquest",
        rom="Seaquest",
        score_boxes=((7, 19, 80, 110),),
        instructions="Prefer the clip in which you shoot more enemies and collect more divers. Running out of air or "
        "being hit is bad; after it, a clip counts as average.",
    ),
    Game(
        name="space-invaders",
        rom="SpaceInvaders",
        score_boxes=((10, 20, 0, 160),),
        instructions="Prefer the clip in which more enemies are shot. Being shot is bad; after it, a clip counts as "
        "average.",
    ),
)

GAMES: dict[str, Game] = {game.name: game for game in _ALL}

ALONGSIDE = "enduro-alongside"  # for people to teach: Enduro's even mode (paper section 3.2)
SEGMENT_STEPS, FPS = 25, 15  # of a clip: 1.7 seconds (paper appendix A.2)

GAME_IDS = {name: f"prefrl/{game.rom}-v0" for name, game in GAMES.items()} | {ALONGSIDE: "prefrl/EnduroAlongside-v0"}


def is_game(env_id: str) -> bool:
    """Whether an environment, named as for :func:`prefrl.envs.make.make_env`, is an Atari game."""
    name = env_id.rpartition(":")[2]
    return name in GAME_IDS or name in GAME_IDS.values() or name.startswith("ALE/")
