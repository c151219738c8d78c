// The first screen: cut a line, watch the translation break. Every single cut of the first sentence is known before a
// model is loaded; for all else the engine and the model come behind the first click.
(() => {
  "use strict";

  const { loadScript, make, plural } = EdgewiseBase;
  const { ANY, WHOLE, compareWords, cutLine, fromLink, keyOf, readable, silence, toLink } = EdgewiseWords;
  const { Picture, saveAsPicture } = EdgewisePicture;
  const LEAST = 0.1;  // lighter lines are hidden until asked for
  const TAP = matchMedia("(pointer: coarse)").matches ? "Tap" : "Click";

  const PAGE = `
    <form><input name="text" autocomplete="off" spellcheck="false" aria-label="An English sentence"><button name="go">Translate</button></form>
    <p class="note" data-name="note" role="status"></p>
    <div class="chips" data-name="chips"></div>
    <div class="stage">
      <div><p class="pointed" data-name="pointed"></p><div class="frame"><svg role="application" tabindex="0"></svg></div>
        <div class="golf" data-name="golf" hidden></div></div>
      <div class="answer">
        <div class="before"><p class="label">The whole graph says</p><p class="said" data-name="whole"></p><p class="gloss" data-name="wholeGloss"></p></div>
        <div role="status"><p class="label" data-name="head"></p><p class="said" data-name="now"></p><p class="gloss" data-name="gloss"></p></div>
        <p class="label" data-name="next"></p><div class="bars" data-name="bars"></div>
        <p class="why" data-name="why"></p><p class="score" data-name="score" role="status"></p>
        <p class="tools"><button data-do="undo">Undo</button><button data-do="reset">Reset</button><button data-do="share">Share</button></p>
      </div>
    </div>
    <div class="on"><details data-name="more"><summary>More</summary></details>
      <a href="01-attention.html">Why does this work? Read the first chapter</a> <a href="using.html">Put the layer into your own model</a></div>`;

  class Front {
    // known: models (label, training, typical, glosses, tries, files, bytes), holes of golf, first, script.
    constructor(root, known) {
      Object.assign(this, { root, known, turn: 0, history: [], loaded: {}, got: {}, outcome: null });
      this.view = { scope: [ANY, ANY], kinds: new Set(["e2e", "e2d", "d2d"]), pieces: false, every: false };
      const { first } = known;
      this.ready = new Map(first.outcomes.map((outcome) => [outcome.key, outcome]));
      this.start = { ...WHOLE, model: Object.keys(known.models)[0], text: first.text };
      this.build();
      this.state = fromLink(location.hash, known.models) ?? this.start;
      addEventListener("hashchange", () => this.open());
      this.picture.choose(-1);
      this.answer();
    }

    open() {
      const wanted = fromLink(location.hash, this.known.models);
      if (wanted && toLink(wanted) !== toLink(this.state)) this.change(wanted);
    }

    build() {
      const box = make(this.root, "div");
      box.innerHTML = PAGE;
      this.part = (name) => box.querySelector(`[data-name=${name}]`);
      this.form = box.querySelector("form");
      this.svg = box.querySelector("svg");
      this.form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (this.busy) return this.stop();
        this.change({ ...WHOLE, text: this.form.elements.text.value });
      });
      this.picture = new Picture(this.svg, {
        line: (line) => this.onPicture(() => this.toggle(cutLine(this.drawn, line, this.view.scope))),
        word: (side, number) => this.onPicture(() => this.toggle(silence(this.drawn, side, number, this.view.scope))),
        name: (text) => { this.part("pointed").textContent = text || `${TAP} a line to cut it, a word to silence it.`; },
      });
      const { first, holes } = this.known, [par] = holes, chip = (label, act) => make(this.part("chips"), "button", { type: "button" }, label).addEventListener("click", act);
      const of = (word, list) => list.indexOf(word), show = (cuts) => () => this.change({ ...this.start, cuts });
      const { line: [from, to], word } = this.known.chips;
      this.hint = ["e2d", of(from, first.source), of(to, first.target)];
      chip(`Cut ${from} → ${to}`, show(cutLine(first, this.hint)));
      chip(`Silence ${word}`, show(silence(first, "source", of(word, first.source))));
      chip("Cut all lines across", () => this.onTyped(() => this.toggle([["e2d", ANY, ANY, ANY, ANY]])));
      chip(`${par.par.length} of ${first.edges.toLocaleString("en")} edges are enough. Can you do it with ${par.par.length - 1}?`, () => this.play());
      const actions = { undo: () => this.undo(), reset: () => this.change(WHOLE), share: () => this.share() };
      for (const button of box.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
      this.part("more").addEventListener("toggle", () => this.behind ?? this.more());
      new ResizeObserver(() => { if (this.drawn && this.picture.room !== this.svg.parentNode.clientWidth) this.draw(); }).observe(this.svg.parentNode);
    }

    // What was typed and not yet sent is translated first; what is clicked in the picture of another text is then nothing.
    async onTyped(act) {
      const { value } = this.form.elements.text;
      if (value !== this.state.text) await this.change({ ...WHOLE, text: value });
      return act();
    }

    onPicture(act) {
      return this.form.elements.text.value === this.state.text ? act() : this.change({ ...WHOLE, text: this.form.elements.text.value });
    }

    // A new state; `again`: in place of the last one, as while a slider is drawn.
    change(part, again = false) {
      if (!again) this.history.push(this.state);
      this.state = { ...this.state, ...part };
      return this.answer();
    }

    toggle(cuts) {
      const own = new Set(cuts.map(String)), there = new Set(this.state.cuts.map(String));
      const rest = this.state.cuts.filter((cut) => !own.has(String(cut)));
      return this.change({ cuts: cuts.every((cut) => there.has(String(cut))) ? rest : [...rest, ...cuts] });
    }

    undo() {
      this.state = this.history.pop();
      return this.answer();
    }

    stop() {
      this.turn++;
      this.setBusy(false);
      this.note("Stopped.");
    }

    setBusy(busy) {
      this.busy = busy;
      this.root.setAttribute("aria-busy", busy);
      this.form.elements.go.textContent = busy ? "Stop" : "Translate";
    }

    note(text) {
      this.part("note").textContent = text;
    }

    // Of the model that the state names, once it is loaded.
    get answers() {
      return this.got[this.state.model];
    }

    get whole() {
      const { cuts, reach, lighter, kept } = this.state;
      return !cuts.length && reach === null && !lighter && !kept;
    }

    // Translates and draws what the state says.
    async answer() {
      const turn = ++this.turn, alive = () => turn === this.turn, { state, view, known: { first, models } } = this;
      const input = this.form.elements.text;
      if (input.value !== state.text) input.value = state.text;
      history.replaceState(null, "", toLink(state) === toLink(this.start) ? location.href.split("#")[0] : toLink(state));
      this.note("");
      const plain = view.scope.every((n) => n === ANY) && !view.pieces && !view.every && !this.golf?.open;
      const simple = toLink({ ...state, cuts: [] }) === toLink(this.start);
      const outcome = this.whole ? null : this.ready.get(keyOf(state.cuts));
      if (simple && plain && outcome !== undefined) {
        this.setBusy(false);
        this.show(first, outcome);
        if (outcome) this.load(state.model).catch(() => {});
        return;
      }
      this.setBusy(true);
      const answers = await this.need(state.model), text = answers && alive() && this.readable(answers, state.text);
      if (text) {
        const of = [state.model, state.beam, text].join();
        if (this.of !== of) {
          const watch = (ids) => { this.part("whole").textContent = answers.tokenizer.decode(ids); };
          const sentence = await answers.translate(text, { alive, watch, beam: state.beam });
          if (!sentence) return;
          Object.assign(this, { sentence, of });
        }
        const found = this.whole ? null : await answers.outcome(this.sentence, state, { alive });
        if (!alive()) return;
        if (answers.certainty(this.sentence) < models[state.model].typical || !this.sentence.whole.finished) this.doubt();
        this.show(this.sentence, found);
      }
      if (alive()) this.setBusy(false);
    }

    // A model's answers; null, with a line at the field, if they cannot be had.
    async need(name) {
      try {
        return await this.load(name);
      } catch (error) {
        this.note(`The translator cannot be loaded: ${error.message}.`);
        return null;
      }
    }

    // The text that is translated; what of it is not is said at the field.
    readable(answers, given) {
      const { text, left } = readable(given), [head, rest] = answers.fit(text), example = `Try “${this.example()}”`;
      if (!/[\p{L}\p{N}]/u.test(head)) {
        this.note(given.trim() ? `There is nothing here that this translator can read. ${example}` : `Type an English sentence. ${example}`);
        return "";
      }
      const parts = [left && `without “${left}”, which it cannot read`, rest && `without the end, “${rest.slice(0, 40)}…”: 60 pieces of text are the most`];
      const said = parts.filter(Boolean).join("; ");
      if (said) this.note(`Translated ${said}.`);
      return head;
    }

    example() {
      const own = this.known.holes.filter(({ model, text }) => model === this.state.model && text !== this.state.text);
      return own.at(-1).text;
    }

    doubt() {
      this.note(`${this.part("note").textContent} The model is unsure of this one: it has learned ${this.known.models[this.state.model].training}. Try “${this.example()}”`.trim());
    }

    // Loads the engine and a model, once.
    load(name) {
      const { known } = this, { files, bytes } = known.models[name];
      this.loaded[name] ??= (async () => {
        let done = 0;
        const all = [known.script, ...files], tell = () => {
          this.part("pointed").textContent = done < all.length ? `Loading the translator, ${((bytes + known.bytes) / 1e6).toFixed(1)} MB: ${Math.round((100 * done) / all.length)} %` : "";
        };
        const get = async (file) => { await loadScript(file); done++; tell(); };
        tell();
        if (globalThis.EdgewiseAnswers) done++; else await get(known.script);
        await Promise.all(files.map(get));
        this.got[name] = new EdgewiseAnswers.Answers(EdgewiseEngine.load(globalThis.EdgewiseModels[name]));
        delete globalThis.EdgewiseModels[name];
        this.picture.choose(this.picture.chosen);
        return this.got[name];
      })();
      this.loaded[name].catch(() => { delete this.loaded[name]; });
      return this.loaded[name];
    }

    // Shows a sentence and, if anything is cut, what is left of it.
    show(sentence, outcome) {
      Object.assign(this, { sentence: sentence === this.known.first ? this.sentence : sentence, base: sentence, outcome });
      this.draw();
      const { state } = this, { glosses, tries } = this.known.models[state.model];
      const said = outcome?.text ?? sentence.said, words = compareWords(sentence.said, said), same = words.every(([, where]) => where === "both");
      const gloss = (name, text) => {
        this.part(name).replaceChildren();
        text.split("*").forEach((part, i) => make(this.part(name), i % 2 ? "em" : "span", {}, part));
      };
      this.root.classList.toggle("broken", Boolean(outcome));
      this.part("whole").textContent = sentence.said;
      gloss("wholeGloss", glosses[sentence.said] ?? "");
      this.part("head").textContent = outcome ? "With what you cut" : `${TAP} ${sentence.text === this.start.text ? "the line that beats" : "a line"}`;
      const now = this.part("now");
      now.replaceChildren();
      if (outcome) for (const [word, where] of words) if (where !== "old") { make(now, where === "new" ? "mark" : "span", {}, word); now.append(" "); }
      gloss("gloss", !outcome ? "or a word, to silence it." : same ? "Not a word changes." : glosses[said] ?? "");
      const told = outcome ?? (sentence.text === this.start.text ? this.ready.get(keyOf(cutLine(this.known.first, this.hint))) : null);
      const before = told && sentence.target[told.at - 1];
      this.part("next").textContent = told ? `The next word ${before ? `after “${before}”` : "at the start"}` : "";
      const bars = this.part("bars"), percent = (p) => Math.round(100 * p);
      bars.replaceChildren();
      for (const [word, p, q] of (told?.bars ?? []).filter(([, p]) => outcome || p > 0.01)) {
        make(bars, "span", {}, word);
        const box = make(bars, "span", { "aria-hidden": "true" });
        make(box, "i", { style: `width:${Math.max(0.5, 100 * (outcome ? q : p))}%` });
        if (outcome) make(box, "i", { class: "was", style: `width:${Math.max(0.5, 100 * p)}%` });
        make(bars, "span", {}, outcome ? `${percent(p)} → ${percent(q)}\u00a0%` : `${percent(p)}\u00a0%`);
      }
      const prepared = tries.find((one) => one.text === state.text && keyOf(one.cuts) === keyOf(state.cuts) && (one.reach ?? null) === state.reach);
      this.part("why").textContent = outcome ? prepared?.says ?? this.why(sentence, same) : "";
      this.part("score").textContent = "";
      this.golf?.score({ sentence: this.sentence, outcome, same });
      this.behind?.update();
      const nothing = { undo: !this.history.length, reset: this.whole };
      for (const [name, is] of Object.entries(nothing)) this.root.querySelector(`[data-do=${name}]`).disabled = is;
    }

    // Why a single line or word matters: how much attention it had.
    why(sentence, same) {
      const key = keyOf(this.state.cuts), line = sentence.lines.find((one) => keyOf(cutLine(sentence, one)) === key);
      if (!line) return "";
      const [kind, sender, receiver, weight] = line, from = kind === "d2d" ? ["the start", ...sentence.target][sender + 1] : sentence.source[sender];
      const to = (kind === "e2e" ? sentence.source : sentence.target)[receiver], share = `${Math.round(100 * weight)}\u00a0% of its attention`;
      if (kind === "e2e") return `“${to}” gave “${from}” ${share}.`;
      return `To write “${to}”, the model gave “${from}” ${share}${same ? "" : ", and now that is gone"}.`;
    }

    // Draws the sentence if it is another, and marks what is cut.
    draw() {
      const { view, base, state, outcome, answers } = this;
      let drawn = base;
      if (base.whole && (view.pieces || view.every || view.scope.some((n) => n !== ANY))) {
        drawn = view.pieces ? answers.inPieces(base) : base;
        drawn = { ...drawn, lines: answers.lines(drawn, view.scope, view.every) };
      }
      this.drawn = drawn;
      const settings = JSON.stringify([state.model, base.text, state.beam, view.scope, view.pieces, view.every, [...view.kinds], this.svg.parentNode.clientWidth, !!base.whole]);
      const hint = this.whole && base.text === this.start.text && !view.pieces ? this.hint : null;
      if (settings !== this.shown) {
        this.picture.show(drawn, { least: view.every ? 0 : LEAST, kinds: view.kinds });
        this.shown = settings;
      }
      this.picture.settings.hint = hint;
      const cuts = new Set(state.cuts.map(String)), { set } = outcome ?? {};
      const covers = (cut) => set ? [...set.edges(cut, base.whole.logProbs.length)].every((edge) => !set.has(...edge)) : cuts.has(String(cut)) || cuts.has(`${cut[0]},-1,-1,-1,-1`) || cuts.has(`${cut[0]},-1,-1,-1,${cut[4]}`);
      const lost = outcome ? this.lost(base, outcome.text) : [];
      this.picture.mark({
        gone: (line) => !this.whole && cutLine(drawn, line, view.scope).every(covers),
        silent: (side, word) => silence(drawn, side, word, view.scope).every((cut) => cuts.has(String(cut))),
        lost: (word) => Boolean(lost[word]) && !view.pieces,
      });
      this.svg.setAttribute("aria-label", `“${base.text}” becomes “${base.said}”: ${plural(this.picture.lines.length, "line")} between words. Arrow keys move from line to line, Enter cuts or mends, S silences the word that a line comes from.`);
    }

    // For each word of the target, whether a text has lost it.
    lost({ said, target }, text) {
      const spoken = compareWords(said, text).filter(([, where]) => where !== "new");
      let at = -1, left = "";
      return target.map((word) => {
        if (!left) left = spoken[++at]?.[0] ?? "";
        left = left.slice(word.length);
        return spoken[at]?.[1] === "old";
      });
    }

    // What comes with the engine: golf, and the rest behind "More".
    async play() {
      const { text, model } = this.known.holes[0];
      if (!(await this.need(model))) return;
      this.golf ??= new EdgewiseGolf.Golf(this, this.part("golf"));
      this.golf.show(true);
      await this.change({ ...WHOLE, model, text });
    }

    async more() {
      if (!(await this.need(this.state.model))) return;
      this.behind ??= new EdgewiseMore.More(this, this.part("more"));
      await this.answer();
    }

    async share() {
      try {
        await navigator.clipboard.writeText(location.href);
        this.note("The link is copied.");
      } catch {  // not allowed to write there
        this.note("The link is in the address bar.");
      }
    }

    save() {
      const texts = [this.base.text, this.base.said, ...(this.outcome ? [`cut: ${this.outcome.text}`] : []), location.href];
      saveAsPicture(this.svg, this.root.previousElementSibling.textContent, texts, "attention.svg");
    }
  }

  for (const root of document.querySelectorAll(".edgewise-front:not([data-alive])")) {
    root.dataset.alive = "";
    root.front = new Front(root, JSON.parse(root.querySelector("script[type='application/json']").textContent));
  }
})();
