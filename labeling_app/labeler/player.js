// The two clips of one pair: loaded behind the scenes, started together, repeated together.

const RETRY_MS = 2000;

class Duo {
  // events: ready(), seen(), failed(reason), offline()
  constructor(pair, words, events) {
    this.pair = pair;
    this.events = events;
    this.loops = 0;
    this.ended = new Set();
    this.stop = new AbortController();
    this.visible = this.released = this.looking = false;
    this.seenAt = this.shownAt = null;
    this.root = document.createElement("div");
    this.root.className = "pair off";
    this.videos = [this.video(pair.left, words.clip_left), this.video(pair.right, words.clip_right)];
  }

  video(url, label) {
    const video = document.createElement("video");
    video.muted = video.defaultMuted = video.playsInline = true;
    video.setAttribute("muted", "");
    video.setAttribute("playsinline", "");
    video.disablePictureInPicture = true;
    video.preload = "auto";
    video.setAttribute("aria-label", label);
    const on = (name, act) => video.addEventListener(name, act, { signal: this.stop.signal });
    on("canplay", () => { if (this.ready) this.onReady(); });
    on("error", () => this.explain(video));
    on("ended", () => this.onEnded(video));
    video.src = url;
    this.root.append(video);
    return video;
  }

  get ready() { return this.videos.every((video) => video.readyState >= 3 && !video.error); }

  onReady() {
    if (this.released) return;
    if (this.visible && this.shownAt === null) this.start();
    this.events.ready(this);
  }

  show(speed) {
    this.visible = true;
    this.seenAt = this.shownAt = null;
    this.askedAt = performance.now();
    this.root.classList.remove("off");
    this.speed(speed);
    if (this.ready) this.start();
  }

  hide() {
    this.visible = false;
    this.root.classList.add("off");
    this.videos.forEach((video) => video.pause());
  }

  start() {
    this.ended.clear();
    this.shownAt = this.shownAt ?? performance.now();
    const missing = new Set(this.videos);
    const seen = (video) => {
      missing.delete(video);
      if (missing.size || !this.visible || this.seenAt !== null) return;
      this.seenAt = performance.now();
      this.events.seen(this);
    };
    for (const video of this.videos) {
      if (video.currentTime) video.currentTime = 0;
      if (video.requestVideoFrameCallback) video.requestVideoFrameCallback(() => seen(video));
      else video.addEventListener("timeupdate", () => seen(video), { once: true, signal: this.stop.signal });
    }
    for (const video of this.videos) {
      video.play().catch((error) => {
        // a phone that saves power plays nothing by itself; its first picture is there, and P or a tap plays it
        if (error.name === "NotAllowedError") seen(video);
      });
    }
  }

  onEnded(video) {
    this.ended.add(video);
    if (this.ended.size < 2 || !this.visible) return;
    this.loops += 1;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.start();
  }

  speed(rate) { this.videos.forEach((video) => { video.playbackRate = video.defaultPlaybackRate = rate; }); }

  // Tells a clip that cannot be shown from a server that does not answer right now.
  async explain(video) {
    if (this.released || this.looking) return;
    this.looking = true;
    let reason = "failed_decode";
    if (!video.src.startsWith("data:")) {
      try {
        const answer = await fetch(video.src, { method: "HEAD", cache: "no-store", signal: this.stop.signal });
        if (answer.status === 404 || answer.status === 410) reason = "failed_gone";
        else if (!answer.ok) reason = "";
      } catch { reason = ""; }
    }
    this.looking = false;
    if (this.released) return;
    if (reason) { this.events.failed(this, reason); return; }
    this.events.offline(this);
    setTimeout(() => {
      if (!this.released) this.videos.filter((one) => one.error).forEach((one) => one.load());
    }, RETRY_MS);
  }

  release() { // a video keeps its decoder and its bytes until it is emptied
    this.released = true;
    this.visible = false;
    this.stop.abort();
    for (const video of this.videos) {
      video.pause();
      video.removeAttribute("src");
      video.load();
    }
    this.root.remove();
  }
}
