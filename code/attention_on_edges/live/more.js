// Behind "More": the other model, experiments, and what is drawn: layers, heads, graphs, pieces.
(() => {
  "use strict";

  const { ANY, KINDS, WHOLE } = EdgewiseWords;
  const { choose, make } = EdgewiseBase;
  const NAMES = { e2e: "source to source", e2d: "source to target", d2d: "target to target" };

  class More {
    constructor(front, panel) {
      this.front = front;
      const { known, view } = front, bar = (label) => make(panel, "div", { class: "bar", role: "group", "aria-label": label });
      const first = bar("Model"), again = () => front.answer(), names = Object.keys(known.models);
      this.model = choose(first, "Model", names.map((name) => [name, known.models[name].label]), (model) => front.change({ ...WHOLE, model, text: this.texts(model)[0] }));
      this.tries = choose(first, "Try", [], (i) => i !== "" && this.try(known.models[front.state.model].tries[i]));
      this.beam = choose(first, "Beam", [[1, "greedy"], [2, "2"], [5, "5"]], (beam) => front.change({ beam: Number(beam) }));
      this.reach = choose(first, "Source words attend", [["", "to all"], [3, "3 pieces each side"], [2, "2 each side"], [1, "1 each side"], [0, "to themselves"]],
        (reach) => front.change({ reach: reach === "" ? null : Number(reach) }));
      const second = bar("Picture");
      this.scope = ["layer", "head"].map((noun, i) => choose(second, `Show and cut in`, [], (n) => { view.scope = view.scope.with(i, Number(n)); again(); }));
      const check = (label, checked, act) => {
        const box = make(make(second, "label", {}, `${label} `), "input", { type: "checkbox" });
        box.checked = checked;
        box.addEventListener("change", () => { act(box.checked); again(); });
      };
      for (const kind of KINDS) check(NAMES[kind], true, (is) => (is ? view.kinds.add(kind) : view.kinds.delete(kind)));
      check("pieces", view.pieces, (is) => { view.pieces = is; });
      check("all lines, also the lightest and those to oneself", view.every, (is) => { view.every = is; });
      const third = bar("Graphs");
      for (const kind of KINDS) make(third, "button", { type: "button" }, `Cut ${NAMES[kind]}`).addEventListener("click", () => front.onTyped(() => front.toggle([[kind, ...view.scope, ANY, ANY]])));
      make(third, "button", { type: "button" }, "Save the picture").addEventListener("click", () => front.save());
      make(panel, "p", {}, "A line is all edges from one word to another, as strong as its weight on average over layers and heads; arcs above stay within the "
        + "source, arcs below within the target. A word of the translation is drawn where it is written: its lines lead from all that the model reads to write it. "
        + "Weights below 0.10, and those of a word to itself, are hidden. When edges are cut, the weights of the receiver’s others grow to sum to one. Layers and heads count from 0.");
    }

    texts(model) {
      return this.front.known.holes.filter((hole) => hole.model === model).map(({ text }) => text);
    }

    try({ text, cuts = [], reach = null }) {
      this.front.change({ ...WHOLE, text, cuts, reach });
    }

    // Choices that depend on the model; called when something new is shown.
    update() {
      const { state, view, answers, known } = this.front, fill = (select, options) => {
        if (select.options.length === options.length && select.dataset.of === state.model) return;
        select.dataset.of = state.model;
        select.replaceChildren();
        for (const [value, text] of options) make(select, "option", { value }, text);
      };
      fill(this.tries, [["", "an experiment"], ...known.models[state.model].tries.map(({ label }, i) => [i, label])]);
      ["layer", "head"].forEach((noun, i) => {
        const count = answers.shape[`${noun}s`];
        if (view.scope[i] >= count) view.scope = view.scope.with(i, ANY);
        fill(this.scope[i], [[ANY, `all ${noun}s`], ...Array.from({ length: count }, (_, n) => [n, `${noun} ${n}`])]);
        this.scope[i].value = view.scope[i];
      });
      Object.assign(this.model, { value: state.model });
      Object.assign(this.beam, { value: state.beam });
      Object.assign(this.reach, { value: state.reach ?? "" });
    }
  }

  globalThis.EdgewiseMore = { More };
})();
