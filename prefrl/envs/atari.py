"""The paper's Atari games, straight over the emulator (appendix A.2): one endless episode of stacked grey frames.

Stable-baselines3's wrappers do the same from gymnasium's environment, at half the speed and without the emulator's
state, from which clips are drawn later.
"""

from __future__ import annotations

import time
from collections import deque
from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from prefrl.errors import EnvError, nearest
from prefrl.games import ALONGSIDE, FPS, GAMES, Game

STACK = 4  # frames of an observation
FRAME_SKIP = 4  # emulated frames of a step; the last two are pooled, since many sprites are in every other one only
MAX_NOOPS = 30  # emulated frames without an action at the start of a game
SMALLEST, BIGGEST = 36, 160  # pixels: what the networks need, and what the screen has
# All that decides how a game goes on, whatever the emulator's defaults become. Sticky actions came after the paper.
EMULATOR: dict[str, int | float | bool] = {
    "repeat_action_probability": 0.0,
    "frame_skip": 1,  # its own; the environment skips
    "max_num_frames_per_episode": 108_000,  # half an hour of play
    "color_averaging": False,
    "truncate_on_loss_of_life": False,
}
EXTRA = "pip install 'prefrl[atari]'"

Frame = NDArray[np.uint8]


class AtariEnv(gym.Env[Frame, np.int64]):
    """One Atari game as a single endless episode.

    An observation is the newest 4 grey frames, uint8 of shape (4, size, size), the oldest first; it slides by one frame
    at each step, also where a game ends and the next one begins. That shows only in ``info``: ``hidden_reset`` and
    ``game_over`` are True, and ``episode`` has the true score ``r``, the steps ``l`` and the seconds ``t``. Lives are
    ignored.

    The reward is what the synthetic oracle sees: the sign of the points of a step, and -1 where a game is lost, in all
    games but Pong. One that is cut off after half an hour of play is not lost.

    Args:
        game: The game.
        size: Height and width of an observation in pixels, 36 to 160.
        hide_score: Whether the game's score boxes are black in observations; people see them in clips.
        scored: Whether there are rewards and scores at all.
        render_mode: ``rgb_array`` to draw, or None.

    Raises:
        EnvError: The extra ``atari`` is not installed, the emulator does not know the game, or an argument is unfit.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": FPS}  # noqa: RUF012  # as gymnasium declares it

    def __init__(
        self,
        game: Game,
        *,
        size: int = 84,
        hide_score: bool = True,
        scored: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self._cv2, ale = _import_cv2(), import_ale()
        _check(game, size, hide_score)
        self.game, self.size, self.render_mode = game, size, render_mode
        self._boxes = game.score_boxes if hide_score else ()
        self._scored = scored
        self._rom = ale.roms.get_rom_path(rom_ids()[game.rom])
        self._noop, self._to_state = ale.Action.NOOP, ale.ALEState
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # it greets on stderr
        self._ale = ale.ALEInterface()
        setters = {int: self._ale.setInt, float: self._ale.setFloat, bool: self._ale.setBool}
        for name, value in EMULATOR.items():
            setters[type(value)](name, value)
        self._ale.loadROM(self._rom)
        self._actions = self._ale.getMinimalActionSet()
        self.action_space = spaces.Discrete(len(self._actions))
        self.observation_space = spaces.Box(0, 255, (STACK, size, size), np.uint8)
        height, width = self._ale.getScreenDims()
        self._screens = np.zeros((2, height, width), np.uint8)
        self._pictures = np.zeros((2, height, width, 3), np.uint8)
        self._frames: deque[Frame] = deque(maxlen=STACK)
        self._began = time.monotonic()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        """Start a game; all four frames are its first one."""
        super().reset(seed=seed)
        if seed is not None or not self._frames:
            self._ale.setInt("random_seed", int(self.np_random.integers(2**31)))
            self._ale.loadROM(self._rom)  # takes the seed up
        self._frames.extend([self._new_game()] * STACK)
        if self.render_mode is not None:
            self._pictures[:] = self._ale.getScreenRGB()
        return np.stack(self._frames), {}

    def step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Play 4 frames with one action; never ended."""
        points = self._play(self._actions[action])
        reward = float(np.sign(points))
        self._score += points
        self._n_steps += 1
        info: dict[str, Any] = {}
        if self._ale.game_over():
            if self.game.end_penalty and not self._ale.game_truncated():
                reward = -1.0
            info = {"hidden_reset": True, "game_over": True}
            if self._scored:
                seconds = round(time.monotonic() - self._began, 6)
                info["episode"] = {"r": float(self._score), "l": self._n_steps, "t": seconds}
            self._frames.append(self._new_game())
        else:
            self._frames.append(self._observed(np.maximum(*self._screens)))
        return np.stack(self._frames), reward if self._scored else 0.0, False, False, info

    def render(self) -> Frame:
        """What the last step showed, the score included: (height, width, 3), RGB, pooled like the observation."""
        picture: Frame = np.maximum(*self._pictures)
        return picture

    def clone_state(self) -> Frame:
        """The emulator's state with its random numbers, from which the same actions lead to the same frames: bytes."""
        return np.frombuffer(self._ale.cloneState(include_rng=True).serialize(), np.uint8)

    def restore_state(self, state: Frame) -> None:
        """Put back what ``clone_state`` gave, here or elsewhere; the frames before it stay as they are.

        Raises:
            EnvError: It is not a state of this game.
        """
        try:
            self._ale.restoreState(self._to_state(np.asarray(state, np.uint8).tobytes()))
        except (RuntimeError, SystemError, ValueError) as error:  # what the emulator's own exceptions become
            raise EnvError(f"{len(state)} bytes are not a state of {self.game.name}: {error}") from error

    def versions(self) -> dict[str, str]:
        """What decides how the game looks and goes on."""
        settings = {**EMULATOR, "frame_skip": FRAME_SKIP, "max_noops": MAX_NOOPS}
        return {
            "ale_py": version("ale-py"),
            "opencv": str(self._cv2.__version__),
            "emulator": ", ".join(f"{name} {value}" for name, value in settings.items()),
        }

    def _new_game(self) -> Frame:
        self._score = self._n_steps = 0
        self._ale.reset_game()
        for _ in range(int(self.np_random.integers(MAX_NOOPS + 1))):
            self._ale.act(self._noop)
            if self._ale.game_over():
                self._ale.reset_game()
        return self._observed(self._ale.getScreenGrayscale())

    def _play(self, action: Any) -> int:
        """The points of a step. A game that is over stands still until it is reset."""
        points = 0
        for i in range(FRAME_SKIP):
            points += self._ale.act(action)
            kept = i - FRAME_SKIP + 2
            if kept >= 0:
                self._ale.getScreenGrayscale(self._screens[kept])
                if self.render_mode is not None:
                    self._ale.getScreenRGB(self._pictures[kept])
        return points

    def _observed(self, screen: Frame) -> Frame:
        for top, bottom, left, right in self._boxes:
            screen[top:bottom, left:right] = 0
        shape = (self.size, self.size)
        return self._cv2.resize(screen, shape, interpolation=self._cv2.INTER_AREA)  # type: ignore[no-any-return]  # cv2 is untyped


def build(name: str, *, size: int = 84, hide_score: bool = True, render_mode: str | None = None) -> AtariEnv:
    """Make a game by its task's name, or any game of the emulator as ``ALE/Alien-v5``.

    Such an id means the game only: the settings are those of this module, not those that gymnasium's id would give.

    Raises:
        EnvError: As for :class:`AtariEnv`.
    """
    game = GAMES.get("enduro" if name == ALONGSIDE else name)
    if game is None:
        game = Game(name, name.removeprefix("ALE/").removesuffix("-v5"), score_boxes=(), instructions="")
    return AtariEnv(game, size=size, hide_score=hide_score, scored=name != ALONGSIDE, render_mode=render_mode)


def rom_ids() -> dict[str, str]:
    """All games of the emulator, named as in ``ALE/SpaceInvaders-v5`` -> as its files are."""
    return {rom.title().replace("_", ""): rom for rom in import_ale().roms.get_all_rom_ids()}


def import_ale() -> Any:
    """The emulator's package.

    Raises:
        EnvError: It is not installed.
    """
    try:
        import ale_py
        import ale_py.roms
    except ImportError as error:
        raise EnvError(f"Atari games need the extra `atari`: {EXTRA} ({error})") from error
    return ale_py


def _import_cv2() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise EnvError(f"Atari games need the extra `atari`: {EXTRA} ({error})") from error
    return cv2


def _check(game: Game, size: Any, hide_score: Any) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or not SMALLEST <= size <= BIGGEST:
        raise EnvError(f"{game.name}: size is {size!r}; it must be a whole number of pixels, {SMALLEST} to {BIGGEST}")
    if not isinstance(hide_score, bool):
        raise EnvError(f"{game.name}: hide_score is {hide_score!r}; it must be true or false")
    if game.rom not in rom_ids():
        known = [f"ALE/{rom}-v5" for rom in rom_ids()]
        raise EnvError(f"unknown environment {game.name!r}{nearest(game.name, known)}")
    if hide_score and not game.score_boxes:
        raise EnvError(
            f"{game.name}: nobody has said where this game shows its score, from which the reward could be read off; "
            "say --env.kwargs '{hide_score=false}' to leave it in the observations"
        )
