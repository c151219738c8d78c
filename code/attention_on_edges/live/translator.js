// The live translator: type a sentence, watch it translated over its three graphs, cut edges, see what breaks.
// engine.js computes, cuts.js says which edges exist, drawing.js draws; here are the reader's state and results.
(() => {
  "use strict";

  const { END, START, greedy, load } = EdgewiseEngine;
  const { ANY, EdgeSet, KINDS } = EdgewiseCuts;
  const { breathe, loadScript, make, plural } = EdgewiseBase;
  const { GraphDrawing, saveAsPicture } = EdgewiseDrawing;
  const NAMES = { e2e: "source to source", e2d: "source to target", d2d: "target to target" };
  const MOST_PIECES = 60;
  const WHOLE = { cuts: [], reach: null, lighter: 0, kept: null };  // nothing is cut

  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

  const CLICK = matchMedia("(pointer: coarse)").matches ? "Tap" : "Click";
  const EMPTY = `${CLICK} a line to cut it.`;
  const PAGE = `
    <form>
      <p class="bar"><label class="grow"><span data-name="language"></span> <input name="text" autocomplete="off" spellcheck="false"></label>
        <button>Translate</button><button type="button" data-do="stop" hidden>Stop</button></p>
      <p class="bar"><label>or take <select data-name="texts"></select></label></p>
    </form>
    <dl><dt>Translation</dt><dd data-name="whole"></dd></dl>
    <p data-name="doubt" class="doubt" hidden></p>
    <div class="frame"><svg class="graphs" role="application" tabindex="0"></svg></div>
    <p data-name="pointed" class="pointed"></p>
    <dl><dt data-name="title">With your cuts</dt><dd data-name="free"></dd></dl>
    <p data-name="result" class="result" role="status"></p>
    <p data-name="note"></p>
    <p class="bar"><button type="button" data-do="undo">Undo</button><button type="button" data-do="mend">Mend all</button>
      <button type="button" data-do="share">Copy a link</button><button type="button" data-do="save">Save the picture</button>
      <span data-name="done" role="status"></span></p>
    <div class="bar" role="group" aria-label="Experiments" data-name="tries"></div>
    <div class="bar" role="group" aria-label="Words to silence" data-name="words"></div>
    <div class="bar" role="group" aria-label="Graphs to cut" data-name="graphs"></div>
    <div class="bar" data-name="scope"></div>
    <p class="bar"><label>Every source piece attends <select name="reach"></select></label></p>
    <details><summary>How to read the picture</summary>
      <p>Above are the pieces of your sentence, below those of the translation, as they were read: “_” is the space before a word, &lt;sos&gt; the
        start. A line joins a piece to one that it attends to; arcs above stay within the source, arcs below within the target. A line stands
        for one edge in each layer and each head, and is as strong as its weight there on average. Weights below 0.03 are not
        drawn. When an edge is cut, the weights of the receiver’s other edges grow to sum to one again.</p>
      <p>Under each piece stands the one that comes next. Bars are its probability after all pieces before it in the translation without cuts:
        whole (outline) and with your cuts (filled), in percent where they differ. So a piece of the translation is written by what the
        piece before it attends to. Layers and heads count from 0; layer 0 is the first of the encoder and of the decoder.</p></details>`;

  // Words that one text has and another lacks, by their longest common subsequence: [word, "both" | "old" | "new"].
  function compareWords(before, after) {
    const [a, b] = [before, after].map((text) => text.split(" ").filter(Boolean));
    const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
      }
    }
    const words = [];
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (a[i] === b[j]) {
        words.push([a[i], "both"]);
        [i, j] = [i + 1, j + 1];
      } else if (j === b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) words.push([a[i++], "old"]);
      else words.push([b[j++], "new"]);
    }
    return words;
  }

  // Pieces of the source by the word that they belong to: [{text, pieces: [numbers]}].
  function wordsOf(pieces) {
    const words = [];
    pieces.forEach((piece, number) => {
      if (piece.startsWith("_") || !words.length || /^[^\p{L}\p{N}]/u.test(piece)) words.push({ text: "", pieces: [] });
      words.at(-1).text += piece.replace(/^_/, "");
      words.at(-1).pieces.push(number);
    });
    return words;
  }

  // A state as the part of an address after #, and back.
  function toLink({ name, text, cuts, reach, lighter, kept }) {
    const parts = new URLSearchParams({ model: name, text });
    if (cuts.length) parts.set("cut", cuts.map((cut) => cut.join(".")).join("_"));
    if (reach !== null) parts.set("window", reach);
    if (lighter) parts.set("lighter", lighter);
    if (kept) parts.set("keep", kept.join("."));
    return `#live?${parts}`;
  }

  function fromLink(link) {
    if (!link.startsWith("#live?")) return null;
    const parts = new URLSearchParams(link.slice(6)), number = (text) => Math.trunc(Number(text)) || 0;
    const cuts = (parts.get("cut") ?? "").split("_").map((cut) => cut.split("."));
    return {
      name: parts.get("model"), text: parts.get("text") ?? "",
      cuts: cuts.filter(([kind, ...rest]) => (KINDS.includes(kind) || kind === String(ANY)) && rest.length === 4)
        .map(([kind, ...rest]) => [KINDS.includes(kind) ? kind : ANY, ...rest.map(number)]),
      reach: parts.has("window") ? number(parts.get("window")) : null,
      lighter: Number(parts.get("lighter")) || 0,
      kept: parts.has("keep") ? parts.get("keep").split(".").map(number) : null,
    };
  }

  class Translator {
    // settings: for each model its label, language, file, bytes, tries and what is typical of its text.
    // holes: sentences to try, each with its model and the edges that par of edge golf keeps.
    constructor(root, { models: settings, holes, style }) {
      Object.assign(this, { root, settings, holes, style, turn: 0, history: [], listeners: [] });
      const wanted = fromLink(location.hash);
      this.state = wanted && settings[wanted.name] ? wanted : { ...WHOLE, name: Object.keys(settings)[0], text: "" };
    }

    // Loads a model's data, once, and begins. Throws if they cannot be read.
    async open(name) {
      const settings = this.settings[name], turn = ++this.turn;
      if (!settings.loaded) {
        if (this.model) this.busy(true);
        try {
          if (!globalThis.EdgewiseModels?.[name]) await loadScript(settings.file);
          settings.loaded ??= load(globalThis.EdgewiseModels[name]);
        } catch (error) {
          if (this.model && turn === this.turn) this.busy(false);
          throw error;
        }
        delete globalThis.EdgewiseModels[name];
        if (turn !== this.turn) {  // the reader has done something else meanwhile
          this.root.querySelector("[name=model]").value = this.state.name;
          return;
        }
      }
      if (!this.model) this.build();
      Object.assign(this, settings.loaded, { history: [] });
      const { text } = this.state, own = this.holes.some((hole) => hole.text === text) ? "" : text;  // the reader's own text stays
      if (this.state.name !== name || !text) this.state = { ...WHOLE, name, text: own || this.texts(name)[0] };
      this.offer();
      await this.translate();
    }

    build() {
      this.root.querySelector(".still")?.remove();
      const box = make(this.root, "div");
      box.innerHTML = PAGE;
      this.part = (name) => box.querySelector(`[data-name=${name}]`);
      this.form = box.querySelector("form");
      this.svg = box.querySelector("svg");
      this.drawing = new GraphDrawing(this.svg, { choose: (...edge) => this.point(...edge), toggle: (edge) => this.toggle(edge) });
      this.form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.begin(this.form.elements.text.value);
      });
      const actions = {
        stop: () => this.stop(), undo: () => this.undo(), mend: () => this.mend(), share: () => this.share(),
        save: () => saveAsPicture(this.svg, this.style, "attention.svg"),
      };
      for (const button of box.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
      const reach = box.querySelector("[name=reach]");
      [["", "to all"], [3, "3 each side"], [2, "2 each side"], [1, "1 each side"], [0, "to itself only"]]
        .forEach(([value, text]) => make(reach, "option", { value }, text));
      reach.addEventListener("change", () => this.change({ reach: reach.value === "" ? null : Number(reach.value) }));
      new EdgewiseGolf.Golf(this, this.holes);
    }

    // What depends on the model: texts and experiments to try, its layers and heads.
    offer() {
      const { tries, language } = this.settings[this.state.name];
      this.shape = { layers: this.model.config.N, heads: this.model.config.h };
      this.part("language").textContent = language;
      const choice = this.part("texts");
      choice.replaceChildren();
      for (const text of ["a sentence of ours", ...this.texts(this.state.name)]) make(choice, "option", {}, text);
      choice.onchange = () => choice.selectedIndex && this.begin(choice.value);
      this.refill("tries", "Try:", tries.map((one) => [one.label, () => this.begin(one.text, one)]));
      this.refill("graphs", "Cut a whole graph:", KINDS.map((kind) => [NAMES[kind], () => this.toggleCut([kind, ...this.scope(), ANY, ANY])]));
      const scope = this.part("scope"), numbers = (noun, count) => [`all ${noun}s`, ...Array.from({ length: count }, (_, i) => `${noun} ${i}`)];
      scope.replaceChildren();
      make(scope, "span", {}, "A cut counts in");
      for (const noun of ["layer", "head"]) {
        const select = make(scope, "select", { "aria-label": `${noun} of a cut`, name: noun });
        numbers(noun, this.shape[`${noun}s`]).forEach((text, i) => make(select, "option", { value: i - 1 }, text));
        select.addEventListener("change", () => this.draw());
      }
    }

    texts(name) {
      return this.holes.filter(({ model }) => model === name).map(({ text }) => text);
    }

    refill(name, title, choices) {
      const row = this.part(name);
      row.replaceChildren();
      make(row, "span", {}, title);
      choices.forEach(([text, act]) => make(row, "button", { type: "button" }, text).addEventListener("click", act));
    }

    // Layer and head that a cut counts in.
    scope() {
      return ["layer", "head"].map((noun) => Number(this.part("scope").querySelector(`[name=${noun}]`).value));
    }

    begin(text, { cuts = [], reach = null, says = "" } = {}) {
      this.history.push(this.state);
      this.state = { ...WHOLE, name: this.state.name, text, cuts, reach };
      this.part("note").textContent = says;
      return this.translate();
    }

    change(part) {
      this.history.push(this.state);
      this.state = { ...this.state, ...part };
      this.part("note").textContent = "";
      return this.update();
    }

    // Back to what was before, another sentence too.
    undo() {
      if (!this.history.length) return;
      const { text } = this.state;
      this.state = this.history.pop();
      this.part("note").textContent = "";
      return this.state.text === text ? this.update() : this.translate();
    }

    mend() {
      for (const select of this.part("scope").querySelectorAll("select")) select.value = ANY;
      return this.change(WHOLE);
    }

    stop() {
      this.turn++;
      this.say("Stopped.");
      this.busy(false);
    }

    toggle({ kind, receiver, sender }) {
      this.toggleCut([kind, ...this.scope(), receiver, sender]);
    }

    toggleCut(...cuts) {
      const there = (cut) => this.state.cuts.some((other) => same(cut, other));
      const rest = this.state.cuts.filter((cut) => !cuts.some((other) => same(cut, other)));
      this.change({ cuts: cuts.every(there) ? rest : [...rest, ...cuts] });
    }

    // Running the model. A run ends early when another begins.

    async run(options, watch) {
      const turn = this.turn, record = { ids: [], logProbs: [], weights: new Map(), finished: false };
      const attention = (kind, layer, receiver, weights) => record.weights.set(`${kind} ${layer} ${receiver}`, weights);
      for (const step of greedy(this.model, this.ids, { attention, ...options })) {
        record.ids = [...step.ids];
        record.logProbs.push(step.logProbs[step.id]);
        record.finished = step.finished;
        watch?.(record);
        await breathe();
        if (turn !== this.turn) return null;
      }
      return record;
    }

    async translate() {
      this.turn++;
      this.drawing.chosen = null;
      this.form.elements.text.value = this.state.text;
      this.root.querySelector("[name=model]").value = this.state.name;
      this.part("whole").textContent = this.part("free").textContent = "";
      this.part("doubt").hidden = true;
      const ids = this.state.text.length > 5000 ? null : this.tokenizer.encode(this.state.text);
      if (!ids || ids.length > MOST_PIECES) {
        const found = ids ? `${ids.length} pieces` : plural(this.state.text.length, "character");
        return this.refuse(`This page translates up to ${MOST_PIECES} pieces of text; that is ${found}. A sentence or two will do.`);
      }
      if (!EdgewiseEngine.asTrained(this.state.text)) return this.refuse("There is no text: type a sentence.");
      Object.assign(this, { ids, whole: null, pieces: ids.map((id) => this.tokenizer.show(id)) });
      this.busy(true);
      const words = wordsOf(this.pieces).map(({ text, pieces }) => [text, () => this.toggleCut(...pieces.flatMap((piece) => this.silence(piece)))]);
      this.refill("words", "Silence a word:", words);
      this.whole = await this.run({ repeats: 3 }, (record) => {
        this.part("whole").textContent = this.tokenizer.decode(record.ids);
        this.draw(record, record);
      });
      if (!this.whole) return;
      this.doubt();
      await this.update();
    }

    // Nobody attends to a piece of the source, in the layer and head that a cut counts in.
    silence(piece) {
      return ["e2e", "e2d"].map((kind) => [kind, ...this.scope(), ANY, piece]);
    }

    refuse(why) {
      this.whole = null;
      this.svg.replaceChildren();
      this.busy(false);
      this.say(why);
    }

    // What is left of all edges. A translation with cuts may grow longer than the one without.
    edgeSet() {
      const { cuts, reach, lighter, kept } = this.state, written = this.whole.ids.length + 1;
      const set = new EdgeSet(this.shape, this.ids.length, Math.max(written, 2 * this.ids.length + 11));
      if (kept) set.keep(kept, written);
      cuts.forEach((cut) => set.cut(cut));
      if (reach !== null) set.narrow(reach);
      if (lighter) {
        for (const edge of set.edges(undefined, written)) if (this.weight(this.whole, ...edge) < lighter) set.set(edge, 1);
      }
      return set;
    }

    weight = (record, kind, layer, head, receiver, sender) =>
      record.weights.get(`${kind} ${layer} ${receiver}`)?.[head][sender] ?? 0;

    async update() {
      this.turn++;
      if (!this.whole) return this.translate();
      this.busy(true);
      const set = (this.set = this.edgeSet()), count = this.whole.ids.length + 1;
      const left = set.left(count).length, all = [...set.edges(undefined, count)].length;
      const edge = set.has, forced = left === all ? this.whole : await this.run({ edge, forced: this.whole.ids });
      const free = left === all ? this.whole : forced && (await this.run({ edge }));
      if (!free) return;
      Object.assign(this, { forced, free });
      this.draw();
      this.busy(false);
      this.report({ left, all, kept: same(free.ids, this.whole.ids) });
    }

    report(result) {
      const { left, all, kept } = result, whole = this.tokenizer.decode(this.whole.ids);
      const words = compareWords(whole, this.tokenizer.decode(this.free.ids));
      const box = this.part("free"), cut = all - left;
      box.replaceChildren();
      for (const [word, where] of words) {
        make(box, { both: "span", old: "del", new: "ins" }[where], {}, word);
        box.append(" ");
      }
      this.part("title").hidden = box.hidden = !cut;
      const count = (which) => words.filter(([, where]) => where === which).length, changed = Math.max(count("old"), count("new"));
      const said = this.tokenizer.decode(this.free.ids);
      const effect = kept ? "the translation stays the same." : `${plural(changed, "word")} differ${changed === 1 ? "s" : ""}: “${said}”.`;
      this.say(cut ? `${plural(cut, "edge")} of ${all.toLocaleString("en")} cut: ${effect} ${this.mostChanged()}`
        : `“${whole}” ${plural(all, "edge")}; nothing is cut.`);
      this.listeners.forEach((listener) => listener(result));
    }

    // The piece of the translation whose probability the cuts change most.
    mostChanged() {
      const next = [...this.whole.ids, END].slice(0, this.whole.logProbs.length);
      const rows = next.map((id, i) => [id, ...[this.whole, this.forced].map(({ logProbs }) => Math.exp(logProbs[i]))]);
      const [id, was, is] = rows.reduce((a, b) => (Math.abs(b[1] - b[2]) > Math.abs(a[1] - a[2]) ? b : a));
      const piece = id === END ? "the end" : `“${this.tokenizer.show(id).replace("_", "")}”`;
      const [before, after] = [was, is].map((value) => `${(100 * value).toFixed(1)}\u00a0%`);
      return before === after ? "" : `Most changed is ${piece}: its probability goes from ${before} to ${after}.`;
    }

    // Says so when the text is unlike the text that the model was trained on.
    doubt() {
      const { typical, training } = this.settings[this.state.name], { logProbs, finished } = this.whole;
      const mean = Math.exp(logProbs.reduce((sum, value) => sum + value, 0) / logProbs.length), place = this.part("doubt");
      place.hidden = finished && mean >= typical;
      place.textContent = `Do not trust this translation. The model knows ${training}; here the mean probability of a piece is `
        + `${Math.round(100 * mean)} %, below that of 95 in 100 sentences of such text (${Math.round(100 * typical)} %).`;
    }

    say(text) {
      this.part("done").textContent = "";
      this.part("result").textContent = text;
    }

    busy(is) {
      this.root.querySelector("[data-do=stop]").hidden = !is;
      this.root.setAttribute("aria-busy", is);
    }

    // Draws the mean weights in the chosen layers and heads, with the translation without cuts held fixed.
    draw(record = this.forced, whole = this.whole) {
      if (!record || !whole) return;
      const [layer, head] = this.scope(), targets = [START, ...whole.ids].slice(0, whole.logProbs.length);
      const set = this.set && whole === this.whole ? this.set : new EdgeSet(this.shape, this.ids.length, targets.length);
      const found = new Map();
      for (const [kind, l, h, receiver, sender] of set.edges([ANY, layer, head, ANY, ANY], targets.length)) {
        const key = `${kind} ${receiver} ${sender}`, edge = found.get(key) ?? { kind, receiver, sender, weight: 0, before: 0, left: 0, count: 0 };
        edge.weight += this.weight(record, kind, l, h, receiver, sender);
        edge.before += this.weight(whole, kind, l, h, receiver, sender);
        edge.left += set.has(kind, l, h, receiver, sender);
        edge.count++;
        found.set(key, edge);
      }
      const edges = [...found.values()].map(({ weight, before, left, count, ...edge }) => ({
        ...edge, weight: weight / (left || 1), before: before / count, cut: !left,
      }));
      const show = (ids) => ids.map((id) => this.tokenizer.show(id));
      const next = [...whole.ids, END].slice(0, targets.length);
      this.drawing.show({
        sources: this.pieces, targets: show(targets), edges,
        predictions: show(next).map((text, i) => ({ text, before: Math.exp(whole.logProbs[i]), after: Math.exp(record.logProbs[i]) })),
      });
      this.svg.setAttribute("aria-label", `Three graphs over ${plural(this.pieces.length, "source piece")} and ${plural(targets.length, "target piece")}. `
        + "Arrow keys move from edge to edge, Enter cuts or mends.");
      this.part("words").querySelectorAll("button").forEach((button, number) => {
        const { pieces } = wordsOf(this.pieces)[number];
        button.setAttribute("aria-pressed", pieces.every((piece) => this.silence(piece).every((cut) => this.state.cuts.some((other) => same(cut, other)))));
      });
      this.root.querySelector("[name=reach]").value = this.state.reach ?? "";
      const frame = this.svg.parentNode;
      const hint = frame.scrollWidth > frame.clientWidth + 1 ? `${EMPTY} The picture goes on to the right.` : EMPTY;
      if (!this.drawing.chosen) this.part("pointed").textContent = hint;
    }

    // Tells of the edge that is pointed at, aloud only to those who use the keyboard.
    point({ kind, receiver, sender, weight, before, cut }, how, again) {
      const row = kind === "e2e" ? this.pieces : [START, ...this.whole.ids].map((id) => this.tokenizer.show(id));
      const column = kind === "d2d" ? row : this.pieces, place = this.part("pointed");
      place.setAttribute("aria-live", how === "keyboard" && !again ? "polite" : "off");
      place.textContent = `“${row[receiver]}” ${cut ? "attended" : "attends"} to “${column[sender]}”: ${(cut ? before : weight).toFixed(2)}. `
        + `${how === "keyboard" ? "Enter" : CLICK} to ${cut ? "mend" : "cut"}.`;
    }

    async share() {
      history.replaceState(null, "", toLink(this.state));
      try {
        await navigator.clipboard.writeText(location.href);
        this.part("done").textContent = "The link is copied.";
      } catch {  // not allowed to write there
        this.part("done").textContent = "The link is in the address bar.";
      }
    }
  }

  globalThis.EdgewiseTranslator = { Translator, compareWords, fromLink, toLink, wordsOf };
})();
