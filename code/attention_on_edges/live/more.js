// Behind "More": the other model, experiments, and what is drawn: layers, heads, graphs, pieces.
(() => {
  "use strict";

  const { ANY, KINDS, WHOLE } = EdgewiseWords;
  const { choose, make } = EdgewiseBase;
  const NAMES = { e2e: "source to source", e2d: "source to target", d2d: "target to target" };

  class More {
    constructor(front, panel) {
      const { known: { models, holes }, view } = (this.front = front), bar = (label) => make(panel, "div", { class: "bar", role: "group", "aria-label": label });
      const again = () => front.answer(front.state, null), first = bar("Model and experiments"), second = bar("Picture"), third = bar("Graphs");
      this.model = choose(first, "Model", Object.keys(models).map((name) => [name, models[name].label]),
        (model) => front.change({ ...WHOLE, model, text: holes.find((hole) => hole.model === model).text }));
      this.tries = choose(first, "Try", [], (i) => {
        const { text, cuts, reach = null } = models[front.state.model].tries[i];
        front.change({ ...WHOLE, text, cuts, reach });
        front.root.scrollIntoView();  // where the result is
      });
      this.reach = choose(first, "Source words attend", [["", "to all"], [3, "3 pieces each side"], [2, "2 each side"], [1, "1 each side"], [0, "to themselves"]],
        (reach) => front.change({ reach: reach === "" ? null : Number(reach) }));
      this.scope = ["Layer", "Head"].map((noun, i) => choose(second, noun, [], (n) => { view.scope = view.scope.with(i, Number(n)); again(); }));
      const check = (label, checked, act) => {
        const box = make(make(second, "label", {}, `${label} `), "input", { type: "checkbox" });
        box.addEventListener("change", () => { act(box.checked); again(); });
        return () => { box.checked = checked(); };
      };
      this.checks = KINDS.map((kind) => check(NAMES[kind], () => view.kinds.has(kind), (is) => (is ? view.kinds.add(kind) : view.kinds.delete(kind))));
      this.checks.push(check("pieces", () => view.pieces, (is) => { view.pieces = is; }));
      this.checks.push(check("all lines, also the lightest and those to oneself", () => view.every, (is) => { view.every = is; }));
      const button = (label, act) => make(third, "button", { type: "button" }, label).addEventListener("click", act);
      for (const kind of KINDS) button(`Cut ${NAMES[kind]}`, () => front.cut(() => [[kind, ...view.scope, ANY, ANY]], true));
      button("Save the picture", () => front.save());
      make(panel, "p", {}, "A line is all edges from one word to another, as strong as its weight on average over layers and heads; arcs above stay within the "
        + "source, arcs below within the target. A word of the translation is drawn where it is written: its lines lead from all that the model reads to write it. "
        + "Light lines, and those of a word to itself, are hidden. When edges are cut, the weights of the receiver’s others grow to sum to one. Layers and heads count from 0.");
    }

    // What depends on the model and the state.
    update() {
      const { state, view, loaded, known } = this.front, fill = (select, options, value) => {
        select.replaceChildren();
        for (const [name, text] of options) make(select, "option", { value: name }, text);
        select.value = value;
      };
      fill(this.tries, [["", "an experiment"], ...known.models[state.model].tries.map(({ label }, i) => [i, label])], "");
      this.scope.forEach((select, i) => {
        const all = Array.from({ length: loaded[state.model]?.counts[i] ?? 0 }, (_, n) => [n, n]);
        fill(select, [[ANY, "all"], ...all], view.scope[i]);
      });
      this.checks.forEach((show) => show());
      this.model.value = state.model;
      this.reach.value = state.reach ?? "";
    }
  }

  globalThis.EdgewiseMore = { More };
})();
