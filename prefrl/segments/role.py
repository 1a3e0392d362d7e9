"""The renderer role: draws the clips that open queries need, the oldest query's first."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from prefrl.errors import ConfigError, PrefrlError
from prefrl.segments.render import ClipRenderer, fps_of
from prefrl.segments.video import encode_clip
from prefrl.settings import from_dict
from prefrl.store.clips import claim_clips, clips_wanted, fail_clip, prune_clips, store_clip
from prefrl.store.engine import Database
from prefrl.store.metrics import add_event, events
from prefrl.store.runs import Run
from prefrl.store.segments import load_segments
from prefrl.types import Segment

BATCH = 4  # clips claimed at once: seconds of work, far less than after which a claim counts as abandoned
KEEP = 400  # drawn clips that no open query needs: those of the last answers, for looking at them again
PRUNE_EVERY = 50  # clips
LOOK_EVERY_S = 30.0  # for clips that were claimed and never drawn
MAX_EVENTS = 20  # one for each reason; some name the step or the segment
NICE = 10  # a tenth of a processor at most where the policy or the reward wants all of it, yet never nothing


class RendererRole:
    """Turns the segments of open queries into videos.

    A clip that cannot be drawn is marked with the reason and stops nothing; only where nothing at all can be drawn or
    encoded does the role end, with one line. One OpenGL context serves all clips: `close` frees it.

    Args:
        db: The run's database.
        run: The run.
    """

    name = "renderer"

    def __init__(self, db: Database, run: Run) -> None:
        self.db, self.run, self.config = db, run, from_dict(run.config)
        self._renderer: ClipRenderer | None = None
        self._fps = 0.0
        self._claimed: list[int] = []
        self._n_drawn = 0
        self._looked: float | None = None  # when all clips were looked at, abandoned ones included
        self._reasons = {e.message for e in events(db, run.id, limit=None) if e.role == self.name}

    def step(self) -> bool:
        """Draw one clip, claiming some more before where none is left; False if no query needs any."""
        if not self._claimed:
            self._claimed = self._claim()
        if not self._claimed:
            return False
        renderer = self._open()  # where this fails every clip would
        segment_id = self._claimed.pop(0)
        segment = load_segments(self.db, [segment_id], with_states=True).get(segment_id)
        if segment is not None:
            self._finish(segment_id, self._draw(renderer, segment_id, segment))
        self._n_drawn += 1
        if self._n_drawn % PRUNE_EVERY == 0:
            prune_clips(self.db, self.run.id, KEEP)
        return True

    def waiting_for(self) -> str:
        """What is missing before the next clip, in words."""
        return "queries"

    def close(self) -> None:
        """Free the OpenGL context; a later step makes a new one."""
        renderer, self._renderer = self._renderer, None
        if renderer is not None:
            renderer.close()

    def _claim(self) -> list[int]:
        """The next clips; now and then, and at first, also those that a renderer has left behind."""
        now = time.monotonic()
        if self._looked is None:  # this process has taken the role over: whoever had claims has them no more
            self._looked = now
            return claim_clips(self.db, self.run.id, BATCH, stale_ms=0)
        if now - self._looked < LOOK_EVERY_S and not clips_wanted(self.db, self.run.id):
            return []
        self._looked = now
        return claim_clips(self.db, self.run.id, BATCH)

    def _open(self) -> ClipRenderer:
        if self._renderer is None:
            env = self.config.env
            self._fps = fps_of(env.id, env.kwargs)
            self._renderer = ClipRenderer(env.id, env.kwargs)
        return self._renderer

    def _draw(self, renderer: ClipRenderer, segment_id: int, segment: Segment) -> bytes | str:
        """The video, or why there is none.

        Raises:
            ConfigError: Nothing can be encoded here.
        """
        if segment.states is None:
            return f"{self.config.env.id} recorded no simulator states to draw from"
        try:
            return encode_clip(renderer.frames(segment.states, segment.act), self._fps)
        except ConfigError:
            raise
        except PrefrlError as error:
            return str(error)
        except Exception as error:  # what a simulator or a driver raises
            self.close()  # the next clip gets a new context
            return f"{type(error).__name__}: {error}"

    def _finish(self, segment_id: int, drawn: bytes | str) -> None:
        if isinstance(drawn, bytes):
            store_clip(self.db, segment_id, drawn, {"fps": self._fps, "n_bytes": len(drawn)})
            return
        fail_clip(self.db, segment_id, drawn)
        message = f"a clip cannot be drawn: {drawn}"
        if message not in self._reasons and len(self._reasons) < MAX_EVENTS:
            self._reasons.add(message)
            add_event(self.db, self.run.id, self.name, "clip", message)


def be_polite() -> None:
    """Leave the processors to the policy and the reward wherever these want them."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    # where the kernel shares out time by session, niceness counts only within one
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE))
