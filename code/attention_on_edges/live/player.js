// One figure of attention as a graph and as a matrix, with selectors and a slider that plays.
(() => {
  "use strict";

  const { enhance, make } = EdgewiseBase;
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
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
    const graph = make(parent, "svg", { class: "graph", tabindex: 0, role: "application", ...frame(wide, high) });
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
    // Arrow keys go to the next cell in the matrix, and in the graph to the next edge, or up and down to the
    // nearest edge of another receiver.
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const walk = (svg, first, next) => svg.addEventListener("keydown", (event) => {
      if (!steps[event.key]) return;
      event.preventDefault();
      event.stopPropagation(); // a notebook moves its own selection with the same keys
      const number = marked === null ? first : next(marked, ...steps[event.key]);
      if (number !== undefined) choose(row(number), column(number));
    });
    walk(matrix, 0, (n, down, right) => between(0, row(n) + down, rows - 1) * columns + between(0, column(n) + right, columns - 1));
    walk(graph, view.edges[0], (n, down, right) => {
      if (right) return right > 0 ? view.edges.find((e) => e > n) : view.edges.findLast((e) => e < n);
      const far = (e) => Math.abs(row(e) - row(n)) * columns + Math.abs(column(e) - column(n));
      return view.edges.filter((e) => (row(e) - row(n)) * down > 0).sort((a, b) => far(a) - far(b))[0];
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
    const time = data.dimensions.at(-1), last = time.values.length - 1;
    const chosen = data.dimensions.map((dimension) => (dimension === time ? data.start : 0));
    let view = data.views[data.shown], drawn = null, spot = null, timer = null;

    const bar = make(root, "div", { class: "bar" });
    const pick = (name, values, value, change) => {
      if (values.length < 2) return;
      const select = make(make(bar, "label", {}, capital(name) + " "), "select", { "aria-label": capital(name) });
      values.forEach((text, number) => make(select, "option", { value: number }, text));
      select.value = value;
      select.addEventListener("change", () => change(Number(select.value)));
    };
    pick("view", data.views.map((v) => v.name), data.shown, (number) => { view = data.views[number]; open(); });
    data.dimensions.slice(0, -1).forEach(({ name, values }, axis) => {
      pick(name, values, 0, (number) => { chosen[axis] = number; show(); });
    });
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const run = make(bar, "span", { class: "time" });
    const play = make(run, "button", { type: "button" }, "Play");
    const slider = make(run, "input", { type: "range", min: 0, max: last, value: data.start, "aria-label": capital(time.name) });
    const label = make(run, "output");
    run.hidden = last === 0;
    const views = make(root, "div", { class: "panels" });
    const status = make(root, "p", { "aria-live": "polite" });
    const told = make(root, "div", { class: "told" }); // on paper, where there is no bar

    const moment = () => chosen[chosen.length - 1];
    const weights = () => view.weights[chosen.reduce((n, value, axis) => n * data.dimensions[axis].values.length + value, 0)];
    const named = () => data.dimensions.filter(({ values }) => values.length > 1)
      .map((dimension) => dimension.values[chosen[data.dimensions.indexOf(dimension)]]).join(", ");
    function announce() {
      if (!spot) {
        status.textContent = "Point at an edge or a cell, or move with the arrow keys, to read its weight.";
        return;
      }
      const [r, s] = spot, w = drawn.weight(r, s), when = named();
      const [who, whom] = [`“${view.receivers[r]}” (${r + 1})`, `“${view.senders[s]}” (${s + 1})`];
      status.textContent = (when ? when + ": " : "")
        + (w === null ? `${who} has no edge from ${whom}` : `${who} gives ${whom} ${w.toFixed(3)}`);
    }
    function choose(r, s) {
      if (spot && spot[0] === r && spot[1] === s) return;
      spot = [r, s];
      drawn.mark(r, s);
      announce();
    }
    function show() {
      slider.value = moment();
      slider.setAttribute("aria-valuetext", time.values[moment()]);
      label.textContent = time.values[moment()];
      drawn.weigh(weights());
      const shown = [data.title, view.name, named()].filter(Boolean).join(", ");
      drawn.graph.setAttribute("aria-label", `${shown}, as a graph. Arrow keys move from edge to edge.`);
      told.textContent = shown;
      announce();
    }
    function open() {
      spot = null;
      drawn = draw(views, view, choose);
      show();
    }
    function go(next) { chosen[chosen.length - 1] = next; show(); }
    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = still.matches ? "Next" : "Play";
      status.setAttribute("aria-live", "polite");
    }
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (still.matches) return go(moment() === last ? 0 : moment() + 1);
      if (moment() === last) go(0);
      play.textContent = "Pause";
      status.setAttribute("aria-live", "off"); // it would be read at every step
      timer = setInterval(() => (moment() === last ? stop() : go(moment() + 1)), 700);
    });
    still.addEventListener("change", stop);
    slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
    stop();
    open();
  });
})();
