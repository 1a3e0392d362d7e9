// Answers that the server has not acknowledged yet, in the order in which they were given.
// They are in memory and in sessionStorage, so that neither a dead server nor a reload loses one. Closing the tab does:
// the browser asks before.

const SLOT = "prefrl.outbox";

// What was answered under another name, or in another run, in this tab is sent as well: an answer belongs to the
// lease under which its pair was shown. A server that does not know the lease leaves it here.
class Outbox {
  constructor() {
    this.items = []; // {entry, pair, who, at}
    try {
      for (const slot of Object.keys(sessionStorage)) {
        if (!slot.startsWith(`${SLOT}/`)) continue;
        const found = JSON.parse(sessionStorage.getItem(slot));
        if (Array.isArray(found)) this.items.push(...found.filter((item) => item && item.entry && item.pair));
      }
    } catch { /* storage is closed to us: memory alone must do */ }
  }

  save(run, who) {
    const slot = `${SLOT}/${run}/${who}`;
    const mine = this.items.filter((item) => item.who === who && item.entry.run === run);
    try {
      if (mine.length) sessionStorage.setItem(slot, JSON.stringify(mine));
      else sessionStorage.removeItem(slot);
    } catch { /* as above */ }
  }

  add(who, entry, pair) {
    const light = (url) => (url.startsWith("data:") ? "" : url);
    const kept = { ...pair, left: light(pair.left), right: light(pair.right) };
    this.items.push({ entry, pair: kept, who, at: Date.now() });
    this.save(entry.run, who);
    return kept;
  }

  acknowledge(ids) {
    const known = new Set(ids);
    const gone = this.items.filter((item) => known.has(item.entry.id));
    this.items = this.items.filter((item) => !known.has(item.entry.id));
    gone.forEach((item) => this.save(item.entry.run, item.who));
  }

  has(id) { return this.items.some((item) => item.entry.id === id); }

  of(run) { return this.items.filter((item) => item.entry.run === run); }

  get entries() { return this.items.map((item) => item.entry); }
}

const outbox = new Outbox(); // outlives the component, which Streamlit may take down and put up again
window.addEventListener("beforeunload", (event) => { if (outbox.items.length) event.preventDefault(); });
