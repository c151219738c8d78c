// Edge golf: keep a translation with as few edges as possible. Played on the live translator's graphs.
(() => {
  "use strict";

  const { ANY } = EdgewiseCuts;
  const { make } = EdgewiseBase;
  const DAY = 24 * 60 * 60 * 1000;

  const PANEL = `<summary>Edge golf: keep the translation with the fewest edges</summary>
    <p>Each edge of each layer and head counts one. Cut what the translation does not need; a score counts only while the
      translation is the same, word for word. Par was found by a program that tries edge after edge: it can be beaten.</p>
    <p class="bar"><label>Sentence <select name="hole"></select></label></p>
    <p class="bar"><label class="grow">Cut all edges lighter than <input type="range" name="lighter" min="0" max="1" step="0.01" value="0">
      <output name="limit">0.00</output></label></p>
    <p class="bar"><button type="button" name="hint">Cut what par does not need</button><button type="button" name="par">Show par</button></p>
    <p class="score" role="status"></p>`;

  // The sentence of a day: the same for everyone, another tomorrow.
  const holeOf = (date, count) => Math.floor(date.getTime() / DAY) % count;

  // holes: {model, text, par: [numbers of the edges that are kept]}.
  class Golf {
    constructor(translator, holes, today = new Date()) {
      Object.assign(this, { translator, holes });
      const panel = (this.panel = make(translator.root, "details", { class: "golf" }));
      panel.innerHTML = PANEL;
      this.part = (name) => panel.querySelector(`[name=${name}]`);
      const choice = this.part("hole"), first = holeOf(today, holes.length);
      make(choice, "option", { value: "" }, "choose");
      holes.forEach(({ text }, i) => make(choice, "option", { value: i }, `${i === first ? "today’s: " : ""}${text}`));
      choice.addEventListener("change", () => choice.value && this.play(holes[choice.value]));
      panel.addEventListener("toggle", () => panel.open && translator.free && translator.update());
      this.part("lighter").addEventListener("input", () => this.translator.change({ lighter: Number(this.part("lighter").value) }));
      this.part("hint").addEventListener("click", () => this.hint());
      this.part("par").addEventListener("click", () => this.translator.change({ cuts: [], reach: null, lighter: 0, kept: this.hole.par }));
      translator.listeners.push((result) => this.score(result));
    }

    async play(hole) {
      if (this.translator.state.name !== hole.model) await this.translator.open(hole.model);
      await this.translator.begin(hole.text);
    }

    // Cuts the largest group, of one graph, layer and head, of which par keeps nothing.
    hint() {
      const { translator, hole } = this, all = [...translator.set.edges(undefined, translator.whole.ids.length + 1)];
      const needed = new Set(hole.par.map((number) => all[number].slice(0, 3).join()));
      const groups = new Map();
      for (const edge of all) {
        const group = edge.slice(0, 3);
        if (!needed.has(group.join()) && translator.set.has(...edge)) groups.set(group.join(), [group, (groups.get(group.join())?.[1] ?? 0) + 1]);
      }
      const [best] = [...groups.values()].sort(([, a], [, b]) => b - a);
      if (!best) return this.say("Par needs an edge in every group that is left: now cut single edges, layer by layer.");
      translator.toggleCut([...best[0], ANY, ANY]);
    }

    score({ left, all, kept }) {
      const { state } = this.translator;
      this.hole = this.holes.find(({ model, text }) => model === state.name && text === state.text) ?? null;
      this.part("hole").value = this.hole ? this.holes.indexOf(this.hole) : "";
      this.part("lighter").value = state.lighter;
      this.part("limit").textContent = state.lighter.toFixed(2);
      for (const name of ["hint", "par"]) this.part(name).disabled = !this.hole;
      if (!this.panel.open) return;
      if (!this.hole) return this.say(`${left.toLocaleString("en")} of ${all.toLocaleString("en")} edges are left. This sentence has no par: choose one above.`);
      const par = this.hole.par.length, score = `${left.toLocaleString("en")} of ${all.toLocaleString("en")} edges are left; par is ${par}.`;
      if (!kept) return this.say(`${score} The translation is lost: undo, or mend.`);
      const shown = state.kept === this.hole.par && left === par;
      this.panel.classList.toggle("won", left < par);
      this.say(left < par ? `${score} You beat par by ${par - left}! Copy the link and show it to us.` : left === par ? `${score} ${shown ? "This is par." : "Par!"}` : score);
    }

    say(text) {
      this.panel.querySelector(".score").textContent = text;
    }
  }

  globalThis.EdgewiseGolf = { Golf, holeOf };
})();
