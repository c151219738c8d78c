// One head's attention as a graph and as a matrix, with a selector and a slider that plays.
(() => {
  "use strict";

  const { enhance, make } = EdgewiseBase;
  const between = (least, n, most) => Math.min(Math.max(n, least), most);

  // Draws one view's graph and matrix; returns what changes them.
  function draw(parent, view, choose) {
    const { receivers, senders } = view, rows = receivers.length, columns = senders.length;
    parent.replaceChildren();

    const longest = Math.max(...senders.concat(receivers).map((t) => t.length));
    const words = longest > 2, room = words ? 7 * longest + 8 : 16; // words are written upwards
    const cell = 18, left = room + 26, top = room + 26;
    const frame = (width, height) => ({ viewBox: `0 0 ${width} ${height}`, style: `max-width:${1.4 * width}px;min-width:${0.8 * width}px` });
    const wide = cell * Math.max(rows, columns) + 40, high = Math.max(0.8 * wide, 150) + 2 * room - 28;
    const graph = make(parent, "svg", { class: "graph", role: "img", ...frame(wide, high) });
    const at = (i, count) => 20 + (i + 0.5) * (wide - 40) / count;
    const matrix = make(parent, "svg", {
      class: "matrix", tabindex: 0, role: "application", ...frame(left + columns * cell + 4, top + rows * cell + 4),
      "aria-label": "Weights: rows attend, columns are attended to. Arrow keys move from cell to cell.",
    });
    const ground = { class: "ground", x: left, y: top, width: columns * cell, height: rows * cell };
    make(matrix, "rect", ground);
    const row = (number) => Math.floor(number / columns), column = (number) => number % columns;
    const edges = new Map();
    let marked = null;
    view.edges.forEach((number, place) => {
      const r = row(number), s = column(number);
      const ends = { x1: at(s, columns), y1: 24 + room, x2: at(r, rows), y2: high - 26 - room };
      const box = { x: left + s * cell, y: top + r * cell, width: cell, height: cell };
      edges.set(number, {
        place, line: make(graph, "line", { class: "edge", ...ends }), rect: make(matrix, "rect", { class: "weight", ...box }),
      });
    });
    const upwards = (svg, x, y, anchor, t) =>
      make(svg, "text", words ? { transform: `translate(${x},${y}) rotate(-90)`, style: `text-anchor:${anchor}` } : { x, y }, t);
    const whom = senders.map((t, s) => [
      upwards(graph, at(s, columns), words ? 20 + room : 12 + room, "start", t),
      upwards(matrix, left + (s + 0.5) * cell, words ? top - 5 : top - 10, "start", t),
    ]);
    const who = receivers.map((t, r) => [
      upwards(graph, at(r, rows), words ? high - 22 - room : high - 13 - room, "end", t),
      make(matrix, "text", { x: left - 6, y: top + (r + 0.5) * cell, style: "text-anchor:end" }, t),
    ]);
    make(graph, "text", { x: wide / 2, y: 8 }, "attended to");
    make(graph, "text", { x: wide / 2, y: high - 8 }, "attends");
    make(matrix, "text", { x: left + columns * cell / 2, y: 8 }, "attended to");
    make(matrix, "text", { transform: `translate(8,${top + rows * cell / 2}) rotate(-90)` }, "attends");
    const cursor = make(matrix, "rect", { class: "cursor", width: cell, height: cell, visibility: "hidden" });

    const point = (svg, choosePoint) => {
      const where = (event) => {
        const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        choosePoint(x, y);
      };
      svg.addEventListener("pointermove", where);
      svg.addEventListener("pointerdown", where);
    };
    point(matrix, (x, y) => {
      const r = Math.floor((y - top) / cell), s = Math.floor((x - left) / cell);
      if (r >= 0 && r < rows && s >= 0 && s < columns) choose(r, s);
    });
    // In the graph, choose the visible line that is nearest at the pointer's height.
    point(graph, (x, y) => {
      const part = between(0, (y - 24 - room) / (high - 50 - 2 * room), 1);
      const away = (n) => Math.abs(at(column(n), columns) * (1 - part) + at(row(n), rows) * part - x);
      const heavy = (n) => edges.get(n).weight; // the tie-breaker where lines meet
      const [near] = view.edges.filter(heavy).sort((a, b) => away(a) - away(b) || heavy(b) - heavy(a));
      if (near !== undefined && away(near) < cell) choose(row(near), column(near));
    });
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    matrix.addEventListener("keydown", (event) => {
      if (!steps[event.key]) return;
      event.preventDefault();
      event.stopPropagation(); // a notebook moves its own selection with the same keys
      const [down, right] = marked === null ? [0, 0] : steps[event.key], n = marked ?? 0;
      choose(between(0, row(n) + down, rows - 1), between(0, column(n) + right, columns - 1));
    });

    return {
      graph, matrix,
      weigh(weights) {
        for (const edge of edges.values()) {
          const { line, rect } = edge, w = edge.weight = weights[edge.place] / 1000;
          rect.setAttribute("fill-opacity", w);
          line.setAttribute("stroke-opacity", w);
          line.setAttribute("stroke-width", 0.5 + 2.5 * w);
          line.setAttribute("visibility", w > 0 ? "visible" : "hidden");
        }
      },
      mark(r, s) {
        for (const old of [graph, matrix]) old.querySelectorAll(".chosen").forEach((part) => part.classList.remove("chosen"));
        marked = r * columns + s;
        const edge = edges.get(marked);
        if (edge) graph.append(edge.line); // above the others
        for (const part of [...who[r], ...whom[s], ...(edge ? [edge.line] : [])]) part.classList.add("chosen");
        cursor.setAttribute("x", left + s * cell);
        cursor.setAttribute("y", top + r * cell);
        cursor.setAttribute("visibility", "visible");
      },
      weight: (r, s) => (edges.has(r * columns + s) ? edges.get(r * columns + s).weight : null),
    };
  }

  enhance("player", (root, data) => {
    const last = data.moments.length - 1;
    let view = data.views[data.shown], drawn = null, spot = null, timer = null, moment = 0;

    const bar = make(root, "div", { class: "bar" });
    const select = make(make(bar, "label", {}, "View "), "select", { "aria-label": "View" });
    data.views.forEach(({ name }, number) => make(select, "option", { value: number }, name));
    select.value = data.shown;
    select.addEventListener("change", () => { view = data.views[select.value]; open(); });
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const run = make(bar, "span", { class: "time" });
    const play = make(run, "button", { type: "button" }, "Play");
    const slider = make(run, "input", { type: "range", min: 0, max: last, value: 0, "aria-label": "Moment" });
    const label = make(run, "output");
    const views = make(root, "div", { class: "panels" });
    const status = make(root, "p", { "aria-live": "polite" });
    const told = make(root, "div", { class: "told" }); // on paper, where there is no bar

    function announce() {
      if (!spot) {
        status.textContent = "Point at an edge or a cell, or move with the arrow keys, to read its weight.";
        return;
      }
      const [r, s] = spot, w = drawn.weight(r, s);
      const [who, whom] = [`“${view.receivers[r]}” (${r + 1})`, `“${view.senders[s]}” (${s + 1})`];
      status.textContent = `${data.moments[moment]}: `
        + (w === null ? `${who} has no edge from ${whom}` : `${who} gives ${whom} ${w.toFixed(3)}`);
    }
    function choose(r, s) {
      if (spot && spot[0] === r && spot[1] === s) return;
      spot = [r, s];
      drawn.mark(r, s);
      announce();
    }
    function show() {
      slider.value = moment;
      slider.setAttribute("aria-valuetext", data.moments[moment]);
      label.textContent = data.moments[moment];
      drawn.weigh(view.weights[moment]);
      const shown = `${data.title}, ${view.name}, ${data.moments[moment]}`;
      drawn.graph.setAttribute("aria-label", `${shown}, as a graph.`);
      told.textContent = shown;
      announce();
    }
    function open() {
      spot = null;
      drawn = draw(views, view, choose);
      show();
    }
    function go(next) { moment = next; show(); }
    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = still.matches ? "Next" : "Play";
      status.setAttribute("aria-live", "polite");
    }
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (still.matches) return go(moment === last ? 0 : moment + 1);
      if (moment === last) go(0);
      play.textContent = "Pause";
      status.setAttribute("aria-live", "off"); // it would be read at every step
      timer = setInterval(() => (moment === last ? stop() : go(moment + 1)), 700);
    });
    still.addEventListener("change", stop);
    slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
    stop();
    open();
  });
})();
