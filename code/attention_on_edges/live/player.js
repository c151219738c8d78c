// Chapter 7: one head's attention while a model learns: a matrix, with a slider that plays.
(() => {
  "use strict";

  const { choose, enhance, make, matrix, number, slide } = EdgewiseBase;

  enhance("player", (root, { title, moments, views, shown }) => {
    const last = moments.length - 1, bar = make(root, "div", { class: "bar" });
    const select = choose(bar, "View", views.map(({ name }, i) => [i, name]), open), button = make(bar, "button", { type: "button" });
    const slider = slide(bar, "Moment", { min: 0, max: last, value: 0 }, (to) => { stop(); go(to); }), output = make(slider.parentNode, "output");
    const panels = make(root, "div", { class: "panels" }), said = make(root, "p", { "aria-live": "polite" });
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    let view, drawn, spot, timer = null, moment = 0;

    function open(i) {
      [view, spot] = [views[i], null];
      panels.replaceChildren();
      drawn = matrix(panels, view.receivers, view.senders, "Weights. Arrow keys move from cell to cell.", { move: read, act: read, hover: read });
      drawn.cells.flat().forEach((cell) => cell.classList.add("full"));
      go(moment);
    }
    function read(r, s) {
      spot = [r, s];
      drawn.point(r, s);
      tell();
    }
    function tell() {
      const of = (words, i) => `“${words[i]}” (${i + 1})`, weight = spot && view.weights[moment][spot[0]][spot[1]];
      const who = spot && of(view.receivers, spot[0]), whom = spot && of(view.senders, spot[1]);
      said.textContent = `${title}, ${moments[moment]}` + (!spot ? ". Point at a cell, or move with the arrow keys, to read its weight."
        : weight === null ? `: ${who} has no edge from ${whom}` : `: ${who} gives ${whom} ${number(weight, 3)}`);
    }
    function go(to) {
      moment = to;
      slider.value = to;
      output.textContent = moments[to];
      slider.setAttribute("aria-valuetext", moments[to]);
      drawn.cells.forEach((row, r) => row.forEach((cell, s) => cell.setAttribute("fill-opacity", view.weights[to][r][s] ?? 0)));
      tell();
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      button.textContent = still.matches ? "Next" : "Play";
      said.setAttribute("aria-live", "polite");
    }
    const next = () => {
      if (moment === last - 1) stop();  // before the last is drawn, so that it is read out
      go(moment === last ? 0 : moment + 1);
    };
    button.addEventListener("click", () => {
      if (timer !== null) return stop();
      if (still.matches) return next();
      button.textContent = "Pause";
      said.setAttribute("aria-live", "off");  // it would be read at every moment
      timer = setInterval(next, 700);
      next();
    });
    still.addEventListener("change", stop);
    stop();
    select.value = shown;
    open(shown);
  });
})();
