// What the page says and how it looks. Text enters as text, never as markup.

const SIGNS = { ArrowLeft: "←", ArrowRight: "→", ArrowDown: "↓", Backspace: "⌫", "-": "−" };

Object.assign(Page.prototype, {
  label() {
    const w = this.words;
    const signs = (name) => Object.keys(this.keys).filter((key) => this.keys[key] === name)
      .map((key) => (key === " " ? w.space : SIGNS[key] || key.toUpperCase())).join(" ");
    const shown = `${w.left}/${signs("skip")}`;
    if (this.labelled === shown) return;
    this.labelled = shown;
    for (const button of this.root.querySelectorAll("button[data-do]")) {
      button.querySelector("span").textContent = w[button.dataset.do];
      button.querySelector("kbd").textContent = signs(button.dataset.do);
    }
    this.part("stage").setAttribute("aria-label", w.pair);
    this.part("loading").textContent = w.loading;
    this.part("again").textContent = w.again;
    const help = this.part("help");
    help.querySelector("h4").textContent = w.keys_title;
    help.querySelector(".note").textContent = w.help_note;
    const rows = [
      ...[...ANSWERS, "skip"].map((name) => [signs(name), w[name]]), [signs("undo"), w.key_undo],
      [signs("replay"), w.key_replay], [`${signs("slower")} ${signs("faster")}`, w.key_speed], [signs("help"), w.key_help],
    ];
    const list = help.querySelector("dl");
    list.replaceChildren();
    for (const [key, words] of rows) {
      const [term, text, sign] = ["dt", "dd", "kbd"].map((name) => document.createElement(name));
      sign.textContent = key;
      term.append(sign);
      text.textContent = words;
      list.append(term, text);
    }
  },

  say(line) {
    const place = this.part("line");
    if (place.textContent !== line) place.textContent = line;
  },

  help() {
    const panel = this.part("help");
    panel.hidden = !panel.hidden;
    this.root.querySelector("[data-do=help]").setAttribute("aria-expanded", String(!panel.hidden));
  },

  flash(kind) {
    const sides = { left: ["left"], right: ["right"], tie: ["left", "right"] }[kind] || [];
    const marks = sides.map((side) => [this.part(`flash-${side}`), "on"]);
    const button = this.root.querySelector(`[data-do=${kind}]`);
    if (button) marks.push([button, "chosen"]);
    for (const [place, name] of marks) {
      place.classList.remove(name);
      void place.offsetWidth; // starts the animation anew
      place.classList.add(name);
    }
    clearTimeout(this.fading);
    this.fading = setTimeout(() => {
      this.root.querySelectorAll(".on, .chosen").forEach((place) => place.classList.remove("on", "chosen"));
    }, 500);
  },

  render() {
    const { state, done, budget } = this.data;
    const item = this.queue[0];
    const w = this.words;
    const loaded = Boolean(item && item.duo && item.duo.shownAt !== null);
    this.part("message").hidden = Boolean(item) || state.name === "ready";
    this.part("title").textContent = state.title;
    this.part("text").textContent = state.text;
    this.part("reason").textContent = state.reason;
    this.part("reason").hidden = !state.reason;
    const stage = this.part("stage");
    stage.hidden = !item && state.name !== "ready";
    stage.setAttribute("aria-busy", String(!(item && item.duo && item.duo.seenAt !== null)));
    const loading = this.part("loading");
    loading.hidden = loaded && !item.failed;
    loading.classList.toggle("bad", Boolean(item && item.failed));
    loading.textContent = item && item.failed ? this.failure(item) : w.loading;
    this.part("again").hidden = !(item && item.pair.replaces);
    this.renderNotice();
    for (const name of [...ANSWERS, "skip", "replay"]) {
      this.root.querySelector(`[data-do=${name}]`).disabled = !item;
    }
    this.fit(item);
    if (this.data.pairs) this.renderProgress(done, budget);
    this.renderWaiting();
  },

  fit(item) {
    const video = loadedVideo(item);
    if (!video) return;
    const { style } = this.part("stage");
    style.aspectRatio = `${2 * video.videoWidth} / ${video.videoHeight}`;
    style.setProperty("--ratio", video.videoWidth / video.videoHeight);
  },

  renderProgress(done, budget) {
    const w = this.words;
    const count = budget ? w.progress : w.progress_open;
    this.part("count").textContent = count.replace("{done}", done).replace("{budget}", budget);
    const bar = this.part("bar");
    bar.hidden = !budget;
    bar.max = budget || 1;
    bar.value = Math.min(done, budget || 1);
    bar.setAttribute("aria-label", this.part("count").textContent);
    this.part("pace").textContent = this.pace(budget ? Math.max(0, budget - done) : 0);
  },

  pace(left) {
    if (this.times.length < 4) return "";
    let busy = 0; // a pause is no work
    this.times.forEach((time, i) => { if (i) busy += Math.min(time - this.times[i - 1], 30000); });
    const rate = ((this.times.length - 1) * 60000) / Math.max(busy, 1);
    const parts = [this.words.rate.replace("{n}", Math.round(rate))];
    const minutes = Math.ceil(left / rate);
    if (left && minutes < 90) parts.push(this.words.minutes_left.replace("{n}", minutes));
    else if (left) parts.push(this.words.hours_left.replace("{n}", Math.round(minutes / 60)));
    return parts.join(" · ");
  },

  renderNotice() {
    const { state } = this.data;
    const unreachable = state.name === "unreachable" && this.queue[0];
    const elsewhere = this.data.pairs ? outbox.items.length - outbox.of(this.run).length : 0; // what was sent in vain
    const notice = this.silent(GONE_MS) ? this.words.silent : [unreachable ? `${state.title}. ${state.text}` : state.notice,
      elsewhere && !unreachable && this.words.elsewhere.replace("{n}", elsewhere)].filter(Boolean).join(" ");
    const place = this.part("notice");
    if (place.textContent !== notice) place.textContent = notice;
    place.hidden = !notice;
  },

  renderWaiting() {
    const waiting = outbox.of(this.run);
    const n = waiting.length;
    let line = "";
    if (n && Date.now() - waiting[0].at > RESEND_MS) {
      line = n === 1 ? this.words.waiting_one : this.words.waiting_many.replace("{n}", n);
    }
    const place = this.part("waiting");
    if (place.textContent !== line) place.textContent = line;
  },
});

function loadedVideo(item) {
  return item && item.duo && item.duo.videos.find((video) => video.videoWidth);
}

const pages = new WeakMap(); // Streamlit calls the function below again for each new data

export default function (component) {
  const root = component.parentElement;
  if (!pages.has(root)) pages.set(root, new Page(root));
  pages.get(root).update(component);
  return () => {
    const page = pages.get(root);
    if (page) page.close();
    pages.delete(root);
  };
}
