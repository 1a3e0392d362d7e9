// The page of one annotator: shows pairs in their order, and turns keys into entries of the outbox.
// A pair is named by its lease; an entry holds the lease of the pair that was on the screen, whatever comes later.

const MIN_VIEW_MS = 300; // an answer before that was meant for the pair before
const STUCK_MS = 1000; // after that a pair that does not load can be skipped
const RESEND_MS = 2000;
const POLL_MS = 2500; // while there is no pair
const ALIVE_MS = 30000; // while a person looks at one: keeps the lease
const FAILED_MS = 2500; // how long the reason of a clip that cannot be shown stands
const SILENT_MS = 1500; // the server has not answered for so long: Streamlit may have covered the page
const GONE_MS = 5000; // and after that the page says so
const REACH = 10;
const SPEEDS = [0.25, 0.5, 0.75, 1, 1.5, 2];
const ANSWERS = ["left", "right", "tie", "incomparable"];
const ARROWS = { ArrowLeft: "left", ArrowRight: "right", ArrowDown: "tie" }; // in every layout
const LAYOUTS = {
  arrows: {
    ...ARROWS, t: "tie", " ": "incomparable", s: "skip", Backspace: "undo", p: "replay", "-": "slower", "=": "faster",
    h: "help",
  },
  letters: { // for the left hand; the browser's and Streamlit's own keys are left out
    a: "left", d: "right", s: "tie", " ": "incomparable", w: "skip", q: "undo", e: "replay", 1: "slower",
    2: "faster", h: "help",
  },
};
const CODES = { Space: " ", Minus: "-", Equal: "=", NumpadSubtract: "-" };
const latin = (code) => CODES[code] || (/^(Key|Digit).$/.test(code) ? code.slice(-1).toLowerCase() : null);
const TYPING = "input, textarea, select, [contenteditable], [role=textbox], [role=combobox], [role=listbox], " +
  "[role=option], [role=slider], [role=menu], [role=menuitem], [role=radiogroup]";

const keyOf = (pair) => `${pair.token}/${pair.replaces || ""}`;

class Page {
  constructor(root) {
    this.root = root.querySelector(".labeler");
    this.part = (name) => this.root.querySelector(`.${name}`);
    this.queue = []; // {pair, key, duo, missed}; the first one is on the screen
    this.done = new Set(); // keys of pairs that were answered or skipped here
    this.answered = new Set(); // their queries: the same one may come back under another lease
    this.mine = []; // {id, pair}: what was answered here, oldest first
    this.undone = new Set(); // ids of answers that were taken back here
    this.times = [];
    this.past = [];
    this.speed = 1;
    this.lastPush = 0;
    this.stop = new AbortController();
    const on = (target, name, act, more) => target.addEventListener(name, act, { signal: this.stop.signal, ...more });
    on(window, "keydown", (event) => this.onKey(event), { capture: true });
    on(document, "visibilitychange", () => { if (!document.hidden) this.push(); });
    on(this.root, "click", (event) => this.onClick(event));
    this.timer = setInterval(() => this.tick(), 250);
  }

  update({ data, setStateValue }) {
    this.send = (entries) => setStateValue("outbox", { tab, entries });
    this.data = data;
    this.words = data.words;
    this.keys = LAYOUTS[data.keys] || LAYOUTS.arrows;
    this.silentSince = null;
    this.label();
    if (data.run) this.enter(data.run, data.who);
    this.acknowledge(data.acks);
    if (data.pairs) this.merge(data.pairs);
    if (data.past) this.past = data.past;
    this.render();
  }

  enter(run, who) {
    if (this.run === run && this.who === who) return;
    this.queue.forEach((item) => item.duo && item.duo.release());
    Object.assign(this, { run, who, queue: [], mine: [], past: [], times: [] });
    [this.done, this.answered, this.undone].forEach((set) => set.clear());
    outbox.of(run).filter((item) => item.who === who).forEach(({ entry, pair }) => this.remember(entry, pair));
    this.push(); // what waits, and which tab this is: no pair comes before that
  }

  remember(entry, pair) {
    if (entry.kind === "undo") { this.undone.add(entry.target); return; }
    this.done.add(keyOf(pair));
    if (entry.kind === "skip") return;
    this.answered.add(pair.query_id);
    this.mine = [...this.mine, { id: entry.id, pair }].slice(-REACH);
  }

  acknowledge(acks) {
    const news = acks.filter((ack) => outbox.has(ack.id));
    if (!news.length) return;
    outbox.acknowledge(news.map((ack) => ack.id));
    this.refused = news.some((ack) => !ack.stored);
    this.say((news.findLast((ack) => !ack.stored) || news[news.length - 1]).line);
  }

  // The server's list is the truth about what is ours, except for what it cannot know yet.
  merge(pairs) {
    const listed = new Map(pairs.map((pair) => [keyOf(pair), pair]));
    const fresh = (pair) => !this.done.has(keyOf(pair)) && (pair.replaces || !this.answered.has(pair.query_id));
    const keep = this.queue.filter((item, i) => {
      const known = listed.get(item.key);
      if (known) { item.missed = 0; this.fill(item, known); return true; }
      if (item.pair.replaces && outbox.has(item.pair.replaces)) return true; // its undo is on the way
      item.missed += 1;
      return i === 0 && item.missed < 2; // what is on the screen goes only when missed twice
    });
    const gone = this.queue.filter((item) => !keep.includes(item));
    const had = new Set(keep.map((item) => item.key));
    const queries = new Set(keep.map((item) => item.pair.query_id));
    for (const pair of pairs) {
      if (had.has(keyOf(pair)) || !fresh(pair) || queries.has(pair.query_id)) continue;
      queries.add(pair.query_id);
      keep.push({ pair, key: keyOf(pair), duo: null, missed: 0 });
    }
    const onScreen = this.queue[0];
    if (gone.includes(onScreen) && onScreen.duo && !this.refused) this.say(this.words.gone);
    this.refused = false;
    gone.forEach((item) => item.duo && item.duo.release());
    this.queue = keep;
    this.queue.forEach((item) => this.fill(item, item.pair));
    this.present();
    if (keep.length && keep[0].missed) setTimeout(() => this.push(), 0);
  }

  fill(item, pair) {
    if (item.duo || !pair.left || !pair.right) return;
    item.pair = { ...pair, replaces: item.pair.replaces };
    const current = () => this.queue[0] === item;
    item.duo = new Duo(item.pair, this.words, {
      ready: () => { if (current()) this.render(); },
      seen: () => { if (current()) this.render(); },
      offline: () => { if (current()) this.say(this.words.offline); },
      failed: (_duo, reason) => this.fail(item, reason),
    });
    this.part("pairs").append(item.duo.root);
  }

  present() {
    this.queue.slice(1).forEach((item) => item.duo && item.duo.visible && item.duo.hide());
    const item = this.queue[0];
    if (!item || !item.duo) return;
    if (item.failed) { this.fail(item, item.failed); return; }
    if (!item.duo.visible) { item.duo.show(this.speed); item.replays = 0; item.duo.loops = 0; }
  }

  fail(item, reason) {
    item.failed = reason;
    if (this.queue[0] !== item || item.leaving) return;
    item.leaving = setTimeout(() => {
      item.leaving = null;
      if (this.queue[0] === item) this.leave("skip", item);
    }, FAILED_MS);
    this.render();
  }

  failure(item) { return this.words.failed.replace("{reason}", this.words[item.failed]); }

  answer(kind) {
    const item = this.queue[0];
    const duo = item && item.duo;
    if (!duo) return;
    const now = performance.now();
    if (kind === "skip" && duo.seenAt === null && now - duo.askedAt >= STUCK_MS) { this.leave(kind, item); return; }
    if (item.failed || duo.seenAt === null) return;
    if (now - duo.seenAt < MIN_VIEW_MS) { this.say(this.words.too_fast); return; }
    this.leave(kind, item);
  }

  leave(kind, item) {
    const duo = item.duo;
    const { token, query_id, replaces } = item.pair;
    const seen = duo.seenAt !== null;
    const entry = {
      id: newId(), run: this.run, kind, token, query_id, replaces,
      response_ms: seen ? Math.round(performance.now() - duo.seenAt) : null,
      view: {
        loops: duo.loops, replays: item.replays, speed: this.speed,
        wait_ms: seen ? Math.round(duo.seenAt - duo.askedAt) : 0,
      },
    };
    this.remember(entry, outbox.add(this.who, entry, item.pair));
    if (kind !== "skip") this.times = [...this.times, Date.now()].slice(-20);
    this.flash(kind);
    this.queue.shift();
    this.present();
    duo.release();
    this.push();
    this.render();
  }

  undo() {
    if (!this.run) return;
    const mine = new Set(this.mine.map((one) => one.id));
    const candidates = [...this.mine].reverse().concat(
      this.past.filter((one) => !mine.has(one.id)).map(({ id, ...pair }) => ({ id, pair })),
    );
    const last = candidates.find((one) => !this.undone.has(one.id));
    if (!last) { this.say(this.words.nothing_to_undo); return; }
    const { token, query_id } = last.pair;
    const id = `${tab}-${newId()}`; // the pair stays in the tab that asked for it
    const entry = { id, run: this.run, kind: "undo", token, query_id, target: last.id };
    const pair = { ...last.pair, replaces: entry.id };
    outbox.add(this.who, entry, pair);
    this.remember(entry, pair);
    const item = { pair, key: keyOf(pair), duo: null, missed: 0 };
    const rest = this.queue.filter((other) => other.pair.query_id !== query_id);
    this.queue.filter((other) => !rest.includes(other)).forEach((other) => other.duo && other.duo.release());
    this.queue = [item, ...rest];
    this.fill(item, pair);
    this.present();
    this.say(this.words.undoing);
    this.push();
    this.render();
  }

  act(name) {
    const duo = this.queue[0] && this.queue[0].duo;
    if (!this.part("help").hidden) this.help(); // it covers the clips: nothing is answered behind it
    else if (ANSWERS.includes(name) || name === "skip") this.answer(name);
    else if (name === "undo") this.undo();
    else if (name === "help") this.help();
    else if (name === "replay" && duo && duo.ready) { this.queue[0].replays += 1; duo.start(); }
    else if (name === "slower" || name === "faster") {
      const at = SPEEDS.indexOf(this.speed) + (name === "faster" ? 1 : -1);
      this.speed = SPEEDS[Math.min(Math.max(at, 0), SPEEDS.length - 1)];
      if (duo) duo.speed(this.speed);
      this.say(this.words.speed.replace("{x}", this.speed));
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const target = event.composedPath()[0];
    if (target instanceof Element && target.closest(TYPING)) return;
    // another keyboard than a Latin one, or an input method at work: the place of the key counts
    const foreign = /^[^ -~]$/u.test(event.key) || ["Process", "Unidentified"].includes(event.key);
    const key = (foreign && latin(event.code)) || (event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (key === "Escape" && !this.part("help").hidden) { this.help(); return; }
    const keys = { ...ARROWS, ...this.keys };
    const name = Object.hasOwn(keys, key) ? keys[key] : null;
    if (!name) return;
    if (key === " " && target instanceof Element && target.closest("button, a, summary, [role=button]")) return;
    event.preventDefault();
    event.stopPropagation();
    if (!event.repeat) this.act(name);
  }

  onClick(event) {
    if (event.target.closest(".help")) this.help();
    const button = event.target.closest("button[data-do]");
    if (!button) return;
    this.act(button.dataset.do);
    if (event.detail > 0) this.root.focus({ preventScroll: true }); // a mouse: Space is a key of the page again
  }

  push() {
    if (!this.send) return;
    this.lastPush = Date.now();
    this.silentSince = this.silentSince ?? this.lastPush;
    try { this.send(outbox.entries); } catch { /* the next tick sends it again */ }
  }

  tick() {
    const since = Date.now() - this.lastPush;
    const waiting = outbox.of(this.run).length;
    if (waiting && since >= RESEND_MS) this.push();
    else if (!document.hidden && since >= (this.queue.length ? ALIVE_MS : POLL_MS)) this.push();
    if (!this.data) return;
    this.renderWaiting();
    this.renderNotice();
    this.clearTheWay();
  }

  silent(ms) {
    return Boolean(this.silentSince) && Date.now() - this.silentSince >= ms;
  }

  // Streamlit covers the page when its server is silent; ours goes on, and says itself what waits.
  clearTheWay() {
    if (!this.silent(SILENT_MS)) return;
    const close = document.querySelector("[role=dialog] button[aria-label=Close]");
    if (close) close.click();
  }

  close() {
    this.stop.abort();
    clearInterval(this.timer);
    this.queue.forEach((item) => item.duo && item.duo.release());
    this.queue = [];
  }
}
