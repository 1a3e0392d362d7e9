"""A scripted annotator that sees nothing but the Label page: it looks at the pictures and presses keys.

    prefrl run pendulum --human --no-browser --port 8599 --steps 60000 --name seen
    python -m experiments.at_the_page http://127.0.0.1:8599

It reads the pole's angle off the playing clips and prefers the clip in which the pole points more nearly straight up,
as the task's instructions say. It has no access to the database, to the simulator or to any reward.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

TIE_RAD = 0.03  # mean angles nearer than this look alike in a picture of 256 pixels
GONE_S = 30.0  # the page's server has not answered for so long: the run has ended

LOOK = """
async (ms) => {
  const host = [...document.querySelectorAll("*")].find((e) => e.shadowRoot && e.shadowRoot.querySelector(".labeler"));
  const root = host && host.shadowRoot;
  const pair = root && root.querySelector(".stage[aria-busy=false] .pair:not(.off)");
  if (!pair) return null;
  window.watched = pair;
  const videos = [...pair.querySelectorAll("video")];
  const pen = new OffscreenCanvas(256, 256).getContext("2d", { willReadFrequently: true });
  const angle = (video) => { // of the pole (cyan) against the vertical, seen from the cart (yellow)
    pen.drawImage(video, 0, 0, 256, 256);
    const rgb = pen.getImageData(0, 0, 256, 256).data;
    const pole = [0, 0, 0], cart = [0, 0, 0];
    for (let i = 0; i < rgb.length; i += 4) {
      const [r, g, b] = [rgb[i], rgb[i + 1], rgb[i + 2]];
      const spot = g > 60 && b > 60 && r < 50 ? pole : r > 60 && g > 60 && b < 50 ? cart : null;
      if (spot) { spot[0] += (i / 4) % 256; spot[1] += Math.floor(i / 1024); spot[2] += 1; }
    }
    if (!pole[2] || !cart[2]) return null;
    return Math.atan2(Math.abs(pole[0] / pole[2] - cart[0] / cart[2]), cart[1] / cart[2] - pole[1] / pole[2]);
  };
  const seen = videos.map(() => []);
  const until = performance.now() + ms;
  while (performance.now() < until) {
    videos.forEach((video, i) => { const a = angle(video); if (a !== null) seen[i].push(a); });
    await new Promise((next) => setTimeout(next, 50));
  }
  return seen.map((all) => (all.length ? all.reduce((a, b) => a + b) / all.length : null));
}
"""

STILL = "watched.isConnected && !watched.classList.contains('off')"


def choose(left: float | None, right: float | None) -> str:
    """The key to press for two mean angles of the pole in radians; None where no pole was seen."""
    if left is None or right is None:
        return "Space"
    if abs(left - right) < TIE_RAD:
        return "ArrowDown"
    return "ArrowLeft" if left < right else "ArrowRight"


def label(page: Any, watch_ms: int) -> Iterator[str]:
    """Answer pair after pair until the page is gone; the keys that were pressed."""
    answered = time.monotonic()
    while time.monotonic() - answered < GONE_S or page.request.get("/_stcore/health", timeout=5000).ok:
        angles = page.evaluate(LOOK, watch_ms)
        if angles is None:
            page.wait_for_timeout(200)
            continue
        if not page.evaluate(STILL):
            continue  # the run has ended meanwhile, or another pair has come
        key = choose(*angles)
        page.keyboard.press(key)
        answered = time.monotonic()
        yield key


def main() -> None:
    """Open the page and label until the run has ended."""
    from playwright.sync_api import Error, sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="of the Label page")
    parser.add_argument("--name", default="scripted", help="name of the annotator")
    parser.add_argument("--watch-ms", type=int, default=800, help="how long each pair is looked at")
    args = parser.parse_args()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = chromium.new_context(base_url=args.address)
        page = context.new_page()
        page.goto(f"/?name={args.name}")
        keys: Counter[str] = Counter()
        try:
            keys.update(label(page, args.watch_ms))
        except Error as error:
            print(f"the page is gone: {error.message.splitlines()[0]}")
        print(f"{keys.total()} answers: {dict(keys)}")
        chromium.close()


if __name__ == "__main__":
    main()
