// The first screen: cut a line, watch the translation break. Every single cut of the first sentence is known before a
// model is loaded; for all else the engine and the model come behind the first click.
(() => {
  "use strict";

  const { choose, loadScript, make, plural } = EdgewiseBase;
  const { ANY, WHOLE, compareWords, cutLine, fromLink, keyOf, silence, toLink } = EdgewiseWords;
  const { Picture } = EdgewisePicture;
  const ALL = [ANY, ANY];  // layers and heads
  const LEAST = 0.1;  // lighter lines are hidden
  const TAP = matchMedia("(pointer: coarse)").matches ? "Tap" : "Click";

  const PAGE = `
    <form><input name="text" autocomplete="off" spellcheck="false" aria-label="An English sentence"><button name="go">Translate</button></form>
    <p class="note" data-name="note" role="status"></p>
    <div class="chips" data-name="chips"></div>
    <div class="stage">
      <div><p class="pointed" data-name="pointed" aria-live="polite"></p><div class="frame"><svg role="application" tabindex="0" translate="no"></svg></div></div>
      <div class="answer">
        <div class="before"><p class="label">The whole graph says</p><p class="said" data-name="whole" translate="no"></p><p class="gloss" data-name="wholeGloss"></p></div>
        <div role="status"><p class="label" data-name="head"></p><p class="said" data-name="now" translate="no"></p><p class="gloss" data-name="gloss"></p></div>
        <p class="label" data-name="next"></p><div class="bars" data-name="bars"></div>
        <p class="why" data-name="why"></p>
        <p class="tools"><button data-do="undo">Undo</button><button data-do="reset">Reset</button><button data-do="share">Share</button> <span data-name="done" role="status"></span></p>
      </div>
    </div>
    <div class="on"><details><summary>Layer and head</summary><div class="bar" data-name="scope"></div>
        <p>A line is all edges from one word to another, as strong as its weight on average over layers and heads. Arcs above are within the source,
          arcs below within the target. In the translation a line ends at the word that is being written; an arc comes from a
          word written before, or from the dot, the start token. Light lines, and those of a word to itself, are hidden. When edges are cut, the weights of the receiver’s others grow to sum to one.</p></details>
      <a href="01-attention.html">Why does this work? Read the first chapter</a> <a href="using.html">Put the layer into your own model</a></div>`;

  // Writes a text in which *such words* are emphasised.
  function emphasise(box, text) {
    box.replaceChildren();
    text.split("*").forEach((part, i) => make(box, i % 2 ? "em" : "span", {}, part));
    return box;
  }

  const isWhole = ({ cuts, reach, kept }) => !cuts.length && reach === null && !kept;

  // What is on the screen belongs together: `state`, what was asked for, the `sentence` that is drawn, and the `outcome` of
  // what is cut in it, null if nothing is. All of it changes at once, in show(), when an answer is there.
  class Front {
    // known: text, example, training, typical, chips, glosses, model, counts, files, first.
    constructor(root, known) {
      const { first } = known;
      Object.assign(this, { root, known, turn: 0, history: [], loading: null, answers: null, scope: ALL });
      this.ready = new Map(first.outcomes.map((outcome) => [outcome.key, outcome]));
      this.start = { ...WHOLE, text: first.text };
      this.build();
      this.field.value = first.text;
      this.show(this.start, first, null);
      const open = () => {
        const wanted = fromLink(location.hash);
        if (wanted && toLink(wanted) !== toLink(this.state)) this.answer(wanted);
      };
      addEventListener("hashchange", open);
      open();
    }

    build() {
      const box = make(this.root, "div");
      box.innerHTML = PAGE;
      this.part = (name) => box.querySelector(`[data-name=${name}]`);
      this.svg = box.querySelector("svg");
      const { elements } = box.querySelector("form"), { first, counts, chips: { line: [from, to], word } } = this.known;
      Object.assign(this, { field: elements.text, go: elements.go });
      elements.text.form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (this.underWay === this.field.value) this.stop();
        else this.change({ ...WHOLE, text: this.field.value });
      });
      this.picture = new Picture(this.svg, {
        line: (line) => this.cut(() => cutLine(this.sentence, line, this.scope)),
        word: (side, number) => this.cut(() => silence(this.sentence, side, number, this.scope)),
        name: (text) => {
          const hint = TAP === "Tap" ? "Tap a line twice to cut it, a word once to silence it." : "Click a line to cut it, a word to silence it.";
          this.part("pointed").textContent = text || hint + (this.isSpecial ? " Not all layers and heads are shown." : "");
        },
      });
      const chip = (label, act) => emphasise(make(this.part("chips"), "button", { type: "button" }), label).addEventListener("click", act);
      this.hint = ["e2d", first.source.indexOf(from), first.target.indexOf(to)];
      chip(`Cut *${from} → ${to}*`, () => this.change({ ...this.start, cuts: cutLine(first, this.hint) }));
      chip(`Silence *${word}*`, () => this.change({ ...this.start, cuts: silence(first, "source", first.source.indexOf(word)) }));
      chip("Cut all lines across", () => this.change({ ...WHOLE, text: this.field.value, cuts: [["e2d", ANY, ANY, ANY, ANY]] }));
      chip(`Keep ${first.kept.length} of ${first.edges.toLocaleString("en")} edges: they are enough`, () => this.change({ ...this.start, kept: first.kept }));
      this.selects = ["Layer", "Head"].map((noun, i) => choose(this.part("scope"), noun, [[ANY, "all"], ...Array.from({ length: counts[i] }, (_, n) => [n, n + 1])], (n) => {
        this.scope = this.scope.with(i, Number(n));
        this.answer(this.state, null);
      }));
      const actions = { undo: () => this.answer(this.history.at(-1), null), share: () => this.share(), reset: () => {
        this.scope = ALL;
        this.selects.forEach((select) => { select.value = ANY; });
        this.change(WHOLE);
      } };
      for (const button of box.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
      new ResizeObserver(() => this.picture.room !== this.svg.parentNode.clientWidth && this.draw()).observe(this.svg.parentNode);
    }

    // Cuts what edges() names, or mends it if all of it is cut. What was typed and not yet sent is translated first.
    async cut(edges) {
      if (this.field.value !== this.state.text) {
        if (await this.change({ ...WHOLE, text: this.field.value })) this.note(`${this.part("note").textContent} This is what you have typed: now cut a line of it.`.trim());
        return;
      }
      const cuts = edges(), own = new Set(cuts.map(String)), there = new Set(this.state.cuts.map(String));
      const rest = this.state.cuts.filter((cut) => !own.has(String(cut)));
      if (cuts.every((cut) => there.has(String(cut)))) this.change({ cuts: rest });
      else if (cuts.every((cut) => this.isGone(cut))) this.note("That is gone already, with a larger cut: undo, or reset.");
      else this.change({ cuts: [...rest, ...cuts] });
    }

    change(part, from = this.state) {
      return this.answer({ ...this.state, ...part }, from);
    }

    stop() {
      this.turn++;
      this.setUnderWay(null);
      this.note("Stopped.");
    }

    setUnderWay(text) {
      this.underWay = text;
      this.root.setAttribute("aria-busy", text !== null);
      this.go.textContent = text === null ? "Translate" : "Stop";
    }

    note(text) {
      this.part("note").textContent = text;
    }

    // Shows what a state says, and whether that came to an end; `from` is the state that undo goes back to.
    async answer(wanted, from = this.state) {
      const turn = ++this.turn, alive = () => turn === this.turn, typed = this.field.value, { first } = this.known;
      const plain = !this.isSpecial && toLink({ ...wanted, cuts: [] }) === toLink(this.start);
      const outcome = isWhole(wanted) ? null : this.ready.get(keyOf(wanted.cuts));
      let found = { sentence: first, outcome, note: "" };
      this.note("");
      this.setUnderWay(null);
      if (!plain || outcome === undefined) {
        this.setUnderWay(wanted.text);
        const answers = await this.need(alive);
        found = answers && alive() && (await this.compute(answers, wanted, alive));
        if (!alive()) return false;
        this.setUnderWay(null);
        if (!found) return false;
      } else if (outcome) this.load().catch(() => {});  // for what comes next, which says so if it fails
      if (wanted === this.history.at(-1)) this.history.pop();
      else if (from && from !== this.history.at(-1) && toLink(from) !== toLink(wanted)) this.history.push(from);
      if (this.field.value === typed) this.field.value = wanted.text;
      this.show(wanted, found.sentence, found.outcome);
      this.note(found.note);
      this.writeAddress();
      return true;
    }

    get address() {
      const link = toLink(this.state);
      return location.href.split("#")[0] + (link === toLink(this.start) ? "" : link);
    }

    // At once, or when a gesture ends: browsers allow a hundred changes in half a minute.
    writeAddress() {
      clearTimeout(this.writing);
      const rest = (this.written ?? -Infinity) + 400 - performance.now();
      if (rest > 0) this.writing = setTimeout(() => this.writeAddress(), rest);
      else {
        this.written = performance.now();
        try { history.replaceState(null, "", this.address); } catch { this.writing = setTimeout(() => this.writeAddress(), 5000); }
      }
    }

    // A sentence, translated once, and what is left of it; null if it cannot be read or is no longer wanted.
    async compute(answers, wanted, alive) {
      const { typical, training } = this.known, { text, left, rest } = answers.read(wanted.text), example = `Try “${this.known.example}”`;
      if (!text) {
        const why = rest ? "That is one word of more than 60 pieces" : wanted.text.trim() ? "There is nothing here that this translator can read" : "Type an English sentence";
        this.note(`${why}. ${example}`);
        return null;
      }
      if (this.translated?.text !== text) {
        const sentence = await answers.translate(text, { alive, watch: (ids) => this.note(`${answers.tokenizer.decode(ids)} …`) });
        if (!sentence) return null;
        this.translated = sentence;
      }
      const sentence = this.translated, notes = [];
      if (left) notes.push(`Translated without “${left}”, which it cannot read.`);
      if (rest) notes.push(`Translated without the end, “${rest.slice(0, 40)}…”: 60 pieces of text are the most.`);
      if (sentence.certainty < typical) notes.push(`The model is unsure of this one: it has learned ${training}. ${example}`);
      const outcome = isWhole(wanted) ? null : await answers.outcome(sentence, wanted, { alive });
      return { sentence, outcome, note: notes.join(" ") };
    }

    // The model's answers; null, with a line at the field, if they cannot be had.
    async need(alive) {
      try {
        return await this.load();
      } catch (error) {
        if (alive()) this.note(`The translator cannot be loaded: ${error.message}.`);
        return null;
      }
    }

    // Loads the engine and the model, once.
    load() {
      const { files, model } = this.known;
      const get = async () => {
        let done = 0;
        const tell = () => { this.part("pointed").textContent = `Loading the translator: ${Math.round((100 * done++) / files.length)} %`; };
        tell();
        await Promise.all(files.map((file) => loadScript(file).then(tell)));
        this.answers = new EdgewiseAnswers.Answers(EdgewiseEngine.load(globalThis.EdgewiseModels[model]));
        delete globalThis.EdgewiseModels[model];
        return this.answers;
      };
      this.loading ??= get().catch((error) => { this.loading = null; throw error; }).finally(() => this.picture.choose(this.picture.chosen));
      return this.loading;
    }

    show(state, sentence, outcome) {
      Object.assign(this, { state, sentence, outcome });
      this.draw();
      const { glosses } = this.known, isStart = state.text === this.start.text;
      const said = outcome?.text ?? sentence.said, same = said === sentence.said;
      this.root.classList.toggle("broken", Boolean(outcome));
      this.part("done").textContent = "";
      this.part("whole").textContent = sentence.said;
      for (const name of ["whole", "now"]) this.part(name).lang = this.known.language;
      emphasise(this.part("wholeGloss"), glosses[sentence.said] ?? "");
      this.part("head").textContent = outcome ? (state.kept ? "With these edges alone" : "With what you cut") : `${TAP} ${isStart ? "the pulsing line" : "a line"}${TAP === "Tap" ? " twice" : ""}`;
      const now = this.part("now");
      now.replaceChildren();
      for (const [word, where] of outcome ? compareWords(sentence.said, said) : []) {
        if (where !== "old") make(now, where === "new" ? "mark" : "span", {}, word);
        if (where !== "old") now.append(" ");
      }
      emphasise(this.part("gloss"), !outcome ? "or a word, to silence it." : same ? "Not a word changes." : glosses[said] ?? "");
      this.showNext(outcome ?? (isStart ? this.ready.get(keyOf(cutLine(this.known.first, this.hint))) : null));
      this.part("why").textContent = outcome ? this.why(same) : "";
      for (const [name, is] of [["undo", !this.history.length], ["reset", isWhole(state) && !this.isSpecial]]) this.root.querySelector(`[data-do=${name}]`).disabled = is;
    }

    // Bars of the outcome's words, mostly the likeliest next ones: filled now, outlined before.
    showNext(outcome) {
      const { sentence, part } = this, after = outcome && sentence.target[outcome.at - 1], both = Boolean(this.outcome), bars = part("bars");
      part("next").textContent = !outcome ? "" : outcome.at === null ? "Words that lose most probability" : `The next word ${after ? `after “${after}”` : "at the start"}`;
      bars.replaceChildren();
      for (const [word, before, now] of (outcome?.bars ?? []).filter(([, p]) => both || p > 0.01)) {
        const bar = (share, name) => make(box, "i", { class: name, style: `width:${Math.max(0.5, 100 * share)}%` }), [was, is] = [before, now].map((p) => Math.round(100 * p));
        make(bars, "span", {}, word);
        const box = make(bars, "span", { "aria-hidden": "true" });
        bar(both ? now : before, "is");
        if (both) bar(before, "was");
        make(bars, "span", {}, both ? `${was} → ${is}\u00a0%` : `${was}\u00a0%`);
      }
    }

    // How many edges are kept, or how much attention went along a single line that is cut.
    why(same) {
      if (this.state.kept) return `${plural(this.outcome.left, "edge")} of ${this.sentence.edges.toLocaleString("en")} are left, on ${plural(this.picture.lines.length, "line")}: an edge is of one layer and one head.`;
      const { source, target, lines } = this.sentence, key = keyOf(this.state.cuts), line = lines.find((one) => keyOf(cutLine(this.sentence, one)) === key);
      if (!line) return "";
      const [kind, sender, receiver, weight] = line, from = kind === "d2d" ? ["the start", ...target][sender + 1] : source[sender];
      const share = `gave “${from}” ${Math.round(100 * weight)}\u00a0% of its attention`;
      return kind === "e2e" ? `“${source[receiver]}” ${share}.` : `To write “${target[receiver]}”, the model ${share}${same ? "" : ", and now that is gone"}.`;
    }

    // Whether a layer or a head is chosen: then the model itself has to be there.
    get isSpecial() {
      return this.scope.some((n) => n !== ANY);
    }

    // Whether all edges of a cut are gone.
    isGone(cut) {
      const { set } = this.outcome ?? {}, { cuts } = this.state, has = (...one) => cuts.some((other) => String(other) === String(one));
      if (set) return [...set.edges(cut, this.sentence.run.logProbs.length)].every((edge) => !set.has(...edge));
      return [cut, [cut[0], ANY, ANY, ANY, cut[4]], [cut[0], ANY, ANY, ANY, ANY]].some((wider) => has(...wider));
    }

    // Draws the sentence if it is another or is to be shown otherwise, and marks what is cut.
    draw() {
      const { scope, sentence, state, outcome } = this, room = this.svg.parentNode.clientWidth;
      const gone = (line) => Boolean(outcome) && cutLine(sentence, line, scope).every((cut) => this.isGone(cut));
      const drawnWith = JSON.stringify([sentence.text, Boolean(sentence.run), scope, state.kept, room]);
      if (drawnWith !== this.drawnWith) {
        this.drawn = this.isSpecial && sentence.run ? { ...sentence, lines: this.answers.lines(sentence, scope) } : sentence;
        this.picture.show(this.drawn, (line) => (state.kept ? !gone(line) : line[3] >= LEAST));
        this.picture.choose(-1);
        this.drawnWith = drawnWith;
      }
      const cuts = new Set(state.cuts.map(String)), spoken = (outcome?.text ?? sentence.said).split(/\s+|(?=[.,!?;:])/);
      const hint = isWhole(state) && sentence.text === this.start.text ? this.hint : [];
      this.picture.mark({
        gone,
        silent: (side, word) => silence(sentence, side, word, scope).every((cut) => cuts.has(String(cut))),
        lost: (word) => !spoken.includes(sentence.target[word]),
        hinted: (line) => line.slice(0, 3).join() === hint.join(),
      });
      this.svg.setAttribute("aria-label", `“${sentence.text}” becomes “${sentence.said}”: ${plural(this.picture.lines.length, "line")} between words. Arrow keys move from line to line, Enter cuts or mends, S silences the word that a line comes from.`);
    }

    async share() {
      try {
        await navigator.clipboard.writeText(this.address);
        this.part("done").textContent = "Copied.";
      } catch {  // not allowed to write there
        this.part("done").textContent = "See the address bar.";
      }
    }
  }

  const root = document.querySelector(".edgewise-front");
  root.front = new Front(root, JSON.parse(root.querySelector("script[type='application/json']").textContent));
})();
