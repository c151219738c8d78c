// Edge golf: keep a translation with as few edges as possible. Each edge of each layer and head counts one.
(() => {
  "use strict";

  const { WHOLE, ANY } = EdgewiseWords;
  const { sameWords } = EdgewiseAnswers;
  const { choose, make, slide } = EdgewiseBase;
  const MOST_TRIES = 30;  // of a hint, for each size of groups

  class Golf {
    constructor(front, panel) {
      Object.assign(this, { front, panel });
      const { holes } = front.known;
      make(panel, "p", {}, "Keep the translation, word for word, with the fewest edges. Each edge of each layer and head counts one. Par was found by a program that tries edge after edge: it can be beaten.");
      const bar = make(panel, "p", { class: "bar" });
      this.choice = choose(bar, "Sentence", holes.map(({ text }, i) => [i, text]), (i) => this.play(holes[i]));
      this.slider = slide(bar, "Cut all edges lighter than", { min: 0, max: 1, step: 0.01, value: 0 }, (lighter) => {
        front.change({ lighter }, this.drawn);  // a drag is one step of undo
        this.drawn = true;
      });
      this.slider.addEventListener("change", () => { this.drawn = false; });
      this.limit = make(this.slider.parentNode, "output");
      const button = (label, act) => { const made = make(bar, "button", { type: "button" }, label); made.addEventListener("click", act); return made; };
      this.hinted = button("A cut that costs nothing", () => this.hint());
      button("Show par", () => front.change({ ...WHOLE, kept: this.hole.par }));
      button("Close", () => { this.show(false); front.answer(); });
    }

    show(open) {
      this.open = open;
      this.panel.hidden = !open;
    }

    play({ model, text }) {
      return this.front.change({ ...WHOLE, model, text });
    }

    // Cuts the largest group of edges that the translation does without: of a graph, layer and head, then a receiver, then
    // one edge. The first that leaves the words as they are is cut; par is asked first, and nothing is lost by a hint.
    async hint() {
      const { front } = this, { sentence, state, answers } = front, turn = front.turn, alive = () => turn === front.turn;
      const set = answers.edgeSet(sentence, state), written = sentence.whole.logProbs.length, par = new Set(this.hole?.par);
      const left = [...set.edges(undefined, written)].map((edge, i) => [edge, par.has(i)]).filter(([edge]) => set.has(...edge));
      this.hinted.disabled = true;
      let found = null;
      for (const size of [3, 4, 5]) {
        const groups = new Map();
        for (const [edge, needed] of left) {
          const key = edge.slice(0, size).join(), group = groups.get(key) ?? { cut: [...edge.slice(0, size), ...Array(5 - size).fill(ANY)], count: 0, needed: false };
          groups.set(key, { ...group, count: group.count + 1, needed: group.needed || needed });
        }
        const tries = [...groups.values()].filter(({ needed }) => !needed).sort((a, b) => b.count - a.count).slice(0, MOST_TRIES);
        for (const { cut } of tries) {
          const cuts = [...state.cuts, cut], said = found || !alive() ? null : await answers.outcome(sentence, { ...state, cuts }, { alive, bars: false });
          if (said && sameWords(said.text, sentence.said)) found = cuts;
        }
      }
      this.hinted.disabled = false;
      if (found) front.change({ cuts: found });
      else if (alive()) front.part("score").textContent += " No hint is left: each cut that was tried loses a word.";
    }

    score({ sentence, outcome, same }) {
      const { state, known: { holes } } = this.front;
      this.hole = holes.find(({ model, text }) => model === state.model && text === state.text) ?? null;
      if (!this.open || !sentence) return;
      this.choice.value = this.hole ? holes.indexOf(this.hole) : "";
      if (Number(this.slider.value) !== state.lighter) this.slider.value = state.lighter;
      this.limit.textContent = state.lighter.toFixed(2);
      const left = outcome?.left ?? sentence.edges, par = this.hole?.par.length, count = (n) => n.toLocaleString("en");
      const score = `${count(left)} of ${count(sentence.edges)} edges are left${par ? `; ${par} are known to be enough` : ""}.`;
      const verdict = !same ? " The translation is lost: undo." : !par || left > par ? "" : left < par ? ` You beat par by ${par - left}! Share it.` : " Par!";
      this.front.part("score").classList.toggle("won", same && left < par);
      this.front.part("score").textContent = score + verdict;
    }
  }

  globalThis.EdgewiseGolf = { Golf };
})();
