// The first screen: cut a line, watch the translation break. Every single cut of the first sentence is known before a
// model is loaded; for all else the engine and the model come behind the first click.
(() => {
  "use strict";

  const { loadScript, make, plural } = EdgewiseBase;
  const { ANY, KINDS, WHOLE, compareWords, cutLine, fromLink, keyOf, silence, toLink } = EdgewiseWords;
  const { Picture, saveAsPicture } = EdgewisePicture;
  const SHOWN = { scope: [ANY, ANY], pieces: false, every: false };
  const LEAST = 0.1;  // lighter lines are hidden until asked for
  const TAP = matchMedia("(pointer: coarse)").matches ? "Tap" : "Click";

  const PAGE = `
    <form><input name="text" autocomplete="off" spellcheck="false" aria-label="An English sentence"><button name="go">Translate</button></form>
    <p class="note" data-name="note" role="status"></p>
    <div class="chips" data-name="chips"></div>
    <div class="stage">
      <div><p class="pointed" data-name="pointed" aria-live="polite"></p><div class="frame"><svg role="application" tabindex="0"></svg></div>
        <div class="golf" data-name="golf" tabindex="-1" hidden></div></div>
      <div class="answer">
        <div class="before"><p class="label">The whole graph says</p><p class="said" data-name="whole"></p><p class="gloss" data-name="wholeGloss"></p></div>
        <div role="status"><p class="label" data-name="head"></p><p class="said" data-name="now"></p><p class="gloss" data-name="gloss"></p></div>
        <p class="label" data-name="next"></p><div class="bars" data-name="bars"></div>
        <p class="why" data-name="why"></p><p class="score" data-name="score" role="status"></p>
        <p class="tools"><button data-do="undo">Undo</button><button data-do="reset">Reset</button><button data-do="share">Share</button> <span data-name="done" role="status"></span></p>
      </div>
    </div>
    <div class="on"><details data-name="more"><summary>More</summary></details>
      <a href="01-attention.html">Why does this work? Read the first chapter</a> <a href="using.html">Put the layer into your own model</a></div>`;

  // Writes a text in which *such words* are emphasised.
  function emphasise(box, text) {
    box.replaceChildren();
    text.split("*").forEach((part, i) => make(box, i % 2 ? "em" : "span", {}, part));
    return box;
  }

  const isWhole = ({ cuts, reach, lighter, kept }) => !cuts.length && reach === null && !lighter && !kept;

  // What is on the screen belongs together: `state`, what was asked for, the `sentence` that is drawn, and the `outcome` of
  // what is cut in it, null if nothing is. All of it changes at once, in show(), when an answer is there.
  class Front {
    // known: models (label, training, typical, glosses, tries, files), holes of golf, first, chips, script.
    constructor(root, known) {
      const { first, models, holes } = known;
      Object.assign(this, { root, known, turn: 0, history: [], loading: {}, loaded: {} });
      this.view = { ...SHOWN, kinds: new Set(KINDS) };
      this.ready = new Map(first.outcomes.map((outcome) => [outcome.key, outcome]));
      this.start = { ...WHOLE, model: holes[0].model, text: first.text };
      this.build();
      this.field.value = first.text;
      this.show(this.start, first, null);
      const open = () => {
        const wanted = fromLink(location.hash, models);
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
      const { elements } = box.querySelector("form"), { first, holes: [hole], chips: { line: [from, to], word } } = this.known;
      Object.assign(this, { field: elements.text, go: elements.go });
      elements.text.form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (this.underWay === this.field.value) this.stop();
        else this.change({ ...WHOLE, text: this.field.value });
      });
      this.picture = new Picture(this.svg, {
        line: (line) => this.cut(() => cutLine(this.drawn, line, this.view.scope)),
        word: (side, number) => this.cut(() => silence(this.drawn, side, number, this.view.scope)),
        name: (text) => {
          const hint = TAP === "Tap" ? "Tap a line twice to cut it, a word once to silence it." : "Click a line to cut it, a word to silence it.";
          this.part("pointed").textContent = text || hint + (this.view.kinds.size < 3 || this.view.scope.some((n) => n !== ANY) ? " Not all is shown: see More." : "");
        },
      });
      const chip = (label, act) => emphasise(make(this.part("chips"), "button", { type: "button" }), label).addEventListener("click", act);
      this.hint = ["e2d", first.source.indexOf(from), first.target.indexOf(to)];
      chip(`Cut *${from} → ${to}*`, () => this.change({ ...this.start, cuts: cutLine(first, this.hint) }));
      chip(`Silence *${word}*`, () => this.change({ ...this.start, cuts: silence(first, "source", first.source.indexOf(word)) }));
      chip("Cut all lines across", () => this.change({ ...WHOLE, text: this.field.value, cuts: [["e2d", ANY, ANY, ANY, ANY]] }));
      chip(`${hole.par.length} of ${first.edges.toLocaleString("en")} edges are enough. Can you do it with ${hole.par.length - 1}?`, () => this.play());
      const actions = { undo: () => this.undo(), reset: () => {
        Object.assign(this.view, SHOWN, { kinds: new Set(KINDS) });
        return this.change(WHOLE);
      }, share: () => this.share() };
      for (const button of box.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
      this.part("more").addEventListener("toggle", () => this.part("more").open && this.more());
      new ResizeObserver(() => this.picture.room !== this.svg.parentNode.clientWidth && this.draw()).observe(this.svg.parentNode);
    }

    // Cuts what edges() names, or mends it if all of it is cut. What was typed and not yet sent is translated first; then
    // only what fits any sentence is cut.
    async cut(edges, fitsAny = false) {
      if (this.field.value !== this.state.text) {
        if (!(await this.change({ ...WHOLE, text: this.field.value }))) return;
        if (!fitsAny) return this.note(`${this.part("note").textContent} This is what you have typed: now cut a line of it.`.trim());
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

    undo() {
      return this.answer(this.history.at(-1), null);
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
      const plain = !this.isSpecial && !this.golf?.open && toLink({ ...wanted, cuts: [] }) === toLink(this.start);
      const outcome = isWhole(wanted) ? null : this.ready.get(keyOf(wanted.cuts));
      let found = { sentence: first, outcome, note: "" };
      this.note("");
      this.setUnderWay(null);
      if (!plain || outcome === undefined) {
        this.setUnderWay(wanted.text);
        const answers = await this.need(wanted.model, alive);
        found = answers && alive() && (await this.compute(answers, wanted, alive));
        if (!alive()) return false;
        this.setUnderWay(null);
        if (!found) return false;
      } else if (outcome) this.load(wanted.model).catch(() => {});  // for what comes next, which says so if it fails
      if (wanted === this.history.at(-1)) this.history.pop();
      else if (from && from !== this.history.at(-1) && toLink(from) !== toLink(wanted)) this.history.push(from);
      if (this.field.value === typed) this.field.value = wanted.text;
      this.show(wanted, found.sentence, found.outcome);
      this.note(found.note);
      history.replaceState(null, "", toLink(wanted) === toLink(this.start) ? location.href.split("#")[0] : toLink(wanted));
      return true;
    }

    // A sentence, translated once, and what is left of it; null if it cannot be read or is no longer wanted.
    async compute(answers, wanted, alive) {
      const { model } = wanted, { typical, training } = this.known.models[model], { text, left, rest } = answers.read(wanted.text);
      const example = `Try “${this.known.holes.findLast((hole) => hole.model === model && hole.text !== wanted.text).text}”`;
      if (!text) {
        const why = rest ? "That is one word of more than 60 pieces" : wanted.text.trim() ? "There is nothing here that this translator can read" : "Type an English sentence";
        this.note(`${why}. ${example}`);
        return null;
      }
      const key = [model, text].join();
      if (this.translated?.key !== key) {
        const sentence = await answers.translate(text, { alive, watch: (ids) => this.note(`${answers.tokenizer.decode(ids)} …`) });
        if (!sentence) return null;
        this.translated = { key, sentence };
      }
      const { sentence } = this.translated, notes = [];
      if (left) notes.push(`Translated without “${left}”, which it cannot read.`);
      if (rest) notes.push(`Translated without the end, “${rest.slice(0, 40)}…”: 60 pieces of text are the most.`);
      if (sentence.certainty < typical) notes.push(`The model is unsure of this one: it has learned ${training}. ${example}`);
      this.view.scope = this.view.scope.map((n, i) => (n < answers.counts[i] ? n : ANY));
      const outcome = isWhole(wanted) ? null : await answers.outcome(sentence, wanted, { alive });
      return { sentence, outcome, note: notes.join(" ") };
    }

    // A model's answers; null, with a line at the field, if they cannot be had.
    async need(name, alive = () => true) {
      try {
        return await this.load(name);
      } catch (error) {
        if (alive()) this.note(`The translator cannot be loaded: ${error.message}.`);
        return null;
      }
    }

    // Loads the engine and a model, once.
    load(name) {
      const files = [this.known.script, ...this.known.models[name].files];
      const get = async () => {
        let done = 0;
        const tell = () => { this.part("pointed").textContent = `Loading the translator: ${Math.round((100 * done++) / files.length)} %`; };
        tell();
        await Promise.all(files.map((file) => loadScript(file).then(tell)));
        this.loaded[name] = new EdgewiseAnswers.Answers(EdgewiseEngine.load(globalThis.EdgewiseModels[name]));
        delete globalThis.EdgewiseModels[name];
        return this.loaded[name];
      };
      this.loading[name] ??= get().catch((error) => { delete this.loading[name]; throw error; }).finally(() => this.picture.choose(this.picture.chosen));
      return this.loading[name];
    }

    show(state, sentence, outcome) {
      Object.assign(this, { state, sentence, outcome });
      this.draw();
      const { glosses, tries } = this.known.models[state.model], isStart = state.model === this.start.model && state.text === this.start.text;
      const said = outcome?.text ?? sentence.said, same = said === sentence.said;
      this.root.classList.toggle("broken", Boolean(outcome));
      this.part("done").textContent = "";
      this.part("whole").textContent = sentence.said;
      emphasise(this.part("wholeGloss"), glosses[sentence.said] ?? "");
      this.part("head").textContent = outcome ? "With what you cut" : `${TAP} ${isStart ? "the pulsing line" : "a line"}${TAP === "Tap" ? " twice" : ""}`;
      const now = this.part("now");
      now.replaceChildren();
      for (const [word, where] of outcome ? compareWords(sentence.said, said) : []) {
        if (where !== "old") make(now, where === "new" ? "mark" : "span", {}, word);
        if (where !== "old") now.append(" ");
      }
      emphasise(this.part("gloss"), !outcome ? "or a word, to silence it." : same ? "Not a word changes." : glosses[said] ?? "");
      this.showNext(outcome ?? (isStart ? this.ready.get(keyOf(cutLine(this.known.first, this.hint))) : null));
      const prepared = tries.find((one) => toLink({ ...WHOLE, ...one, model: state.model }) === toLink(state));
      this.part("why").textContent = outcome ? prepared?.says ?? this.why(same) : "";
      this.golf?.score(same);
      this.behind?.update();
      for (const [name, is] of [["undo", !this.history.length], ["reset", isWhole(state) && !this.isSpecial && this.view.kinds.size === 3]]) this.root.querySelector(`[data-do=${name}]`).disabled = is;
    }

    // Bars of the likeliest next words where an outcome changes the text: filled now, outlined before.
    showNext(outcome) {
      const { sentence, part } = this, after = outcome && sentence.target[outcome.at - 1], both = Boolean(this.outcome), bars = part("bars");
      part("next").textContent = outcome ? `The next word ${after ? `after “${after}”` : "at the start"}` : "";
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

    // How much attention went along a single line that is cut.
    why(same) {
      const { source, target, lines } = this.sentence, key = keyOf(this.state.cuts), line = lines.find((one) => keyOf(cutLine(this.sentence, one)) === key);
      if (!line) return "";
      const [kind, sender, receiver, weight] = line, from = kind === "d2d" ? ["the start", ...target][sender + 1] : source[sender];
      const share = `gave “${from}” ${Math.round(100 * weight)}\u00a0% of its attention`;
      return kind === "e2e" ? `“${source[receiver]}” ${share}.` : `To write “${target[receiver]}”, the model ${share}${same ? "" : ", and now that is gone"}.`;
    }

    // Whether more than words and averages are asked for: then the model itself has to be there.
    get isSpecial() {
      const { pieces, every, scope } = this.view;
      return pieces || every || scope.some((n) => n !== ANY);
    }

    // Whether all edges of a cut are gone.
    isGone(cut) {
      const { set } = this.outcome ?? {}, { cuts } = this.state, has = (...one) => cuts.some((other) => String(other) === String(one));
      if (set) return [...set.edges(cut, this.sentence.run.logProbs.length)].every((edge) => !set.has(...edge));
      return [cut, [cut[0], ANY, ANY, ANY, cut[4]], [cut[0], ANY, ANY, ANY, ANY]].some((wider) => has(...wider));
    }

    // Draws the sentence if it is another or is to be shown otherwise, and marks what is cut.
    draw() {
      const { view, sentence, state, outcome } = this, answers = this.loaded[state.model], room = this.svg.parentNode.clientWidth;
      const drawnWith = JSON.stringify([state.model, sentence.text, Boolean(sentence.run), view, [...view.kinds], room]);
      if (drawnWith !== this.drawnWith) {
        this.drawn = sentence.run && view.pieces ? answers.inPieces(sentence) : sentence;
        if (sentence.run && this.isSpecial) this.drawn = { ...this.drawn, lines: answers.lines(this.drawn, view.scope, view.every) };
        this.picture.show(this.drawn, view.every ? 0 : LEAST, view.kinds);
        this.picture.choose(-1);
        this.drawnWith = drawnWith;
      }
      const cuts = new Set(state.cuts.map(String)), spoken = (outcome?.text ?? sentence.said).split(/\s+|(?=[.,!?;:])/);
      const hint = isWhole(state) && state.model === this.start.model && sentence.text === this.start.text ? this.hint : [];
      this.picture.mark({
        gone: (line) => Boolean(outcome) && cutLine(this.drawn, line, view.scope).every((cut) => this.isGone(cut)),
        silent: (side, word) => silence(this.drawn, side, word, view.scope).every((cut) => cuts.has(String(cut))),
        lost: (word) => !view.pieces && !spoken.includes(sentence.target[word]),
        hinted: (line) => !view.pieces && line.slice(0, 3).join() === hint.join(),
      });
      this.svg.setAttribute("aria-label", `“${sentence.text}” becomes “${sentence.said}”: ${plural(this.picture.lines.length, "line")} between words. Arrow keys move from line to line, Enter cuts or mends, S silences the word that a line comes from.`);
    }

    // What comes with the engine: golf, and the rest behind "More".
    async play() {
      const { model, text } = this.known.holes[0], turn = ++this.turn, alive = () => turn === this.turn;
      this.setUnderWay(text);
      const answers = await this.need(model, alive);
      if (!alive()) return;
      this.setUnderWay(null);
      if (!answers) return;
      this.golf ??= new EdgewiseGolf.Golf(this, this.part("golf"));
      this.golf.show(true);
      await this.change({ ...WHOLE, model, text });
    }

    async more() {
      if (!(await this.need(this.state.model))) return;
      this.behind ??= new EdgewiseMore.More(this, this.part("more"));
      this.behind.update();
    }

    async share() {
      try {
        await navigator.clipboard.writeText(location.href);
        this.part("done").textContent = "Copied.";
      } catch {  // not allowed to write there
        this.part("done").textContent = "See the address bar.";
      }
    }

    save() {
      const texts = [this.sentence.text, this.sentence.said, ...(this.outcome ? [`cut: ${this.outcome.text}`] : []), location.href];
      saveAsPicture(this.svg, this.root.previousElementSibling.textContent, texts, "attention.svg");
    }
  }

  const root = document.querySelector(".edgewise-front");
  root.front = new Front(root, JSON.parse(root.querySelector("script[type='application/json']").textContent));
})();
