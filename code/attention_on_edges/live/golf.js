// Edge golf: keep a translation with as few edges as possible. Each edge of each layer and head counts one.
// Sentences and par come from the module studies.golf.
(() => {
  "use strict";

  const { WHOLE, ANY } = EdgewiseWords;
  const { choose, make, slide } = EdgewiseBase;
  const MOST_TRIES = 30;  // of a hint, for each size of groups

  class Golf {
    constructor(front, panel) {
      Object.assign(this, { front, panel });
      const { holes } = front.known, bar = make(panel, "p", { class: "bar" });
      make(bar, "span", {}, "Keep the translation, word for word, with the fewest edges: each edge of each layer and head counts one, so a line is many. Par was found by a program that tries edge after edge: it can be beaten.");
      this.choice = choose(bar, "Sentence", [["", "your own"], ...holes.map(({ model, text }, i) => [i, `${text}${model === front.start.model ? "" : ` (${front.known.models[model].label.split(",")[0]})`}`])], (i) => (i ? front.change({ ...WHOLE, model: holes[i].model, text: holes[i].text }) : front.field.select()));
      this.slider = slide(bar, "Cut all edges lighter than", { min: 0, max: 1, step: 0.01, value: 0 }, (lighter) => {
        this.before ??= front.state;  // a drag is one step of undo
        front.change({ lighter }, this.before);
      });
      this.slider.addEventListener("change", () => { this.before = null; });
      this.limit = make(this.slider.parentNode, "output");
      const button = (label, act) => { const made = make(bar, "button", { type: "button" }, label); made.addEventListener("click", act); return made; };
      this.hinted = button("Hint: a harmless cut", () => this.hint());
      this.par = button("Show par", () => front.change({ ...WHOLE, kept: this.hole.par }));
      button("Close", () => { this.show(false); front.svg.focus({ preventScroll: true }); front.answer(front.state); });
    }

    show(open) {
      this.open = open;
      this.panel.hidden = !open;
      this.front.root.classList.toggle("golfing", open);
      if (open) this.panel.focus();
    }

    // Cuts the largest group of edges without which the words stay: of a graph, layer and head, then a receiver, then one
    // edge. Groups that par needs are not tried; a cut that would change a word is not made.
    async hint() {
      const { front } = this, turn = front.turn, alive = () => turn === front.turn;
      this.hinted.disabled = true;
      const cuts = await this.freeCut(alive);
      this.hinted.disabled = false;
      if (cuts) front.change({ cuts });
      else if (alive()) front.part("done").textContent = "No hint is left.";
    }

    async freeCut(alive) {
      const { sentence, state, loaded } = this.front, answers = loaded[state.model], par = new Set(this.hole?.par);
      const set = answers.edgeSet(sentence, state), all = [...set.edges(undefined, sentence.run.logProbs.length)];
      for (const size of [3, 4, 5]) {
        const counts = new Map(), needed = new Set();
        all.forEach((edge, number) => {
          const key = edge.slice(0, size).join();
          if (par.has(number)) needed.add(key);
          if (set.has(...edge)) counts.set(key, (counts.get(key) ?? 0) + 1);
        });
        const tries = [...counts.keys()].filter((key) => !needed.has(key)).sort((a, b) => counts.get(b) - counts.get(a));
        for (const key of tries.slice(0, MOST_TRIES)) {
          const [kind, ...numbers] = key.split(","), cut = [kind, ...numbers.map(Number), ...Array(5 - size).fill(ANY)];
          const found = await answers.outcome(sentence, { ...state, cuts: [...state.cuts, cut] }, { alive, bars: false });
          if (!found) return null;
          if (found.text === sentence.said) return [...state.cuts, cut];
        }
      }
      return null;
    }

    // The score of what is shown; `same`: whether no word is lost.
    score(same) {
      const { state, sentence, outcome, known: { holes }, part } = this.front, count = (n) => n.toLocaleString("en");
      this.hole = holes.find(({ model, text }) => model === state.model && text === state.text);
      this.par.disabled = !this.hole;
      this.choice.value = holes.indexOf(this.hole) < 0 ? "" : holes.indexOf(this.hole);
      if (this.slider !== document.activeElement) this.slider.value = state.lighter;
      this.limit.textContent = state.lighter.toFixed(2);
      const left = outcome?.left ?? sentence.edges, par = this.hole?.par.length, better = same && par - left;
      const verdict = !same ? " A word is lost: undo." : better > 0 ? ` You need ${better} fewer: share it!` : better === 0 ? " Par!" : "";
      part("score").textContent = this.open ? `${count(left)} of ${count(sentence.edges)} edges are left${par ? `; par is ${par}` : ""}.${verdict}` : "";
      part("score").classList.toggle("won", this.open && better > 0);
    }
  }

  globalThis.EdgewiseGolf = { Golf };
})();
