// Chapter 11: how many steps tokens take, over training: bars that move from epoch to epoch.
(() => {
  "use strict";

  const { choose, enhance, make, number, play } = EdgewiseBase;
  const WIDE = 34, HIGH = 120, TOP = 34, LEFT = 8;

  enhance("steps", (root, { runs, sides }) => {
    const names = Object.keys(runs), said = make(root, "p", { "aria-live": "polite" });
    const panels = make(root, "div", { class: "panels" });
    let shares = runs[names[0]];  // [epoch][side][steps - 1]
    const most = shares[0][0].length, wide = 2 * LEFT + most * WIDE, bottom = TOP + HIGH;
    const x = (steps) => LEFT + (steps - 0.5) * WIDE;

    const drawings = sides.map((side) => {
      const svg = make(panels, "svg", { role: "img", viewBox: `0 0 ${wide} ${bottom + 44}` });
      make(svg, "text", { x: LEFT, y: 8, class: "start name" }, side);
      const told = make(svg, "text", { x: wide - LEFT, y: 8, class: "end" });
      const bars = Array.from({ length: most }, (_, i) => {
        const bar = make(svg, "rect", { class: "amount", x: x(i + 1) - WIDE / 2 + 3, width: WIDE - 6, y: bottom, height: 0 });
        make(svg, "text", { x: x(i + 1), y: bottom + 11 }, i + 1);
        return [bar, make(svg, "text", { x: x(i + 1), class: "small" })];
      });
      make(svg, "path", { class: "base", d: `M${LEFT} ${bottom}H${wide - LEFT}` });
      make(svg, "text", { x: wide / 2, y: bottom + 37, class: "faint" }, "steps");
      const mean = make(svg, "path", { class: "mean", d: `M0 ${bottom + 19}l6 9h-12z` });
      return { svg, bars, mean, told };
    });

    const meanOf = (row) => row.reduce((sum, share, i) => sum + (i + 1) * share, 0);
    function show(epoch) {
      const means = shares[epoch].map(meanOf);
      drawings.forEach(({ svg, bars, mean, told }, side) => {
        bars.forEach(([bar, label], i) => {
          const share = shares[epoch][side][i], high = share * HIGH;
          bar.setAttribute("style", `y:${bottom - high}px;height:${high}px`);  // what CSS can move smoothly
          label.setAttribute("y", bottom - high - 7);
          label.textContent = share >= 0.005 ? `${Math.round(100 * share)}%` : "";
        });
        mean.setAttribute("style", `transform:translate(${x(means[side])}px,0)`);
        told.textContent = `mean ${number(means[side])}`;
        const rows = shares[epoch][side].map((share, i) => `${i + 1}: ${Math.round(100 * share)}%`).join(", ");
        svg.setAttribute("aria-label", `${sides[side]}, share of tokens by number of steps: ${rows}`);
      });
      said.textContent = `Epoch ${epoch + 1}: ${sides.map((side, i) => `a token of the ${side} takes ${number(means[i])} steps on average`).join(", ")}.`;
    }

    const run = play(root, said, "Epoch", { last: shares.length - 1, name: (epoch) => `${epoch + 1} of ${shares.length}` }, show);
    said.before(run.bar);
    const select = choose(run.bar, "Run", names.map((name) => [name, name]), (name) => {
      const { at } = run, { length } = shares;
      shares = runs[name];
      run.stop();
      if (shares.length === length) run.go(at);
      else run.restart(shares.length - 1);
    });
    select.parentNode.hidden = names.length < 2;
    make(root, "p", { class: "note" }, "Bars: the share of validation tokens that take so many steps. Triangle: their mean.");
  });
})();
