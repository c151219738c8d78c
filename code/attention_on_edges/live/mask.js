// Chapter 4: a graph beside its mask. A click on a cell takes the edge away, or brings it back.
(() => {
  "use strict";

  const { choose, enhance, make, walkCells } = EdgewiseBase;
  const CELL = 34;

  enhance("mask", (root, { tokens, graphs }) => {
    const n = tokens.length, bar = make(root, "div", { class: "bar" });
    const panels = make(root, "div", { class: "panels" });
    const said = make(root, "p", { "aria-live": "polite" });
    let edges = new Set();

    const longest = Math.max(...tokens.map((token) => token.length));
    const step = Math.max(44, 8 * longest + 12), wide = n * step, middle = 24 + 0.42 * wide;
    const graph = make(panels, "svg", { class: "graph", role: "img", viewBox: `0 0 ${wide} ${2 * middle}` });
    const left = 8 * longest + 34, top = 48;
    const matrix = make(panels, "svg", {
      class: "matrix", role: "application", tabindex: 0, viewBox: `0 0 ${left + n * CELL + 2} ${top + n * CELL + 2}`,
      "aria-label": "The mask: a row attends, a column is attended to. Arrow keys move, Enter cuts an edge or brings it back.",
    });
    const x = (i) => (i + 0.5) * step;

    // Edges to the right are arcs above the tokens, those to the left below; a token's edge to itself is a loop.
    function arc(receiver, sender) {
      const up = receiver >= sender ? -1 : 1, y = middle + up * 14, x1 = x(sender), x2 = x(receiver);
      if (x1 === x2) return `M${x1 - 5} ${y}C${x1 - 15} ${y - 22} ${x1 + 15} ${y - 22} ${x1 + 5} ${y}`;
      return `M${x1} ${y}Q${(x1 + x2) / 2} ${y + up * (16 + 0.7 * Math.abs(x1 - x2))} ${x2} ${y}`;
    }

    const tip = make(make(graph, "defs"), "marker", {
      id: "mask-tip", viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto",
    });
    make(tip, "path", { d: "M0 0L6 3L0 6z", class: "tip" });
    const arcs = new Map(), cells = new Map();
    for (let r = 0; r < n; r++) {
      for (let s = 0; s < n; s++) {
        const key = `${r} ${s}`, box = { x: left + s * CELL, y: top + r * CELL, width: CELL, height: CELL };
        arcs.set(key, make(graph, "path", { class: "edge", d: arc(r, s), "marker-end": "url(#mask-tip)" }));
        cells.set(key, make(matrix, "rect", { class: "cell", ...box }));
        cells.get(key).addEventListener("click", () => toggle(r, s));
        cells.get(key).addEventListener("pointerenter", () => mark(r, s));
      }
    }
    tokens.forEach((token, i) => {
      make(graph, "text", { x: x(i), y: middle }, token);
      make(matrix, "text", { x: left - 6, y: top + (i + 0.5) * CELL, class: "end" }, token);
      make(matrix, "text", { x: left + (i + 0.5) * CELL, y: top - 12, class: longest > 4 ? "small" : "" }, token);
    });
    const across = left + (n * CELL) / 2, down = top + (n * CELL) / 2;
    make(matrix, "text", { x: across, y: 14, class: "axis" }, "sender");
    make(matrix, "text", { x: 14, y: down, class: "axis", transform: `rotate(-90 14 ${down})` }, "receiver");
    const cursor = make(matrix, "rect", { class: "cursor", width: CELL, height: CELL, visibility: "hidden" });

    function show(change = "") {
      for (const [key, cell] of cells) {
        cell.classList.toggle("full", edges.has(key));
        arcs.get(key).setAttribute("visibility", edges.has(key) ? "visible" : "hidden");
      }
      const alone = tokens.filter((_, r) => !tokens.some((_, s) => edges.has(`${r} ${s}`)));
      said.textContent = `${change}${edges.size} edges, as many as the mask has filled cells.`
        + (alone.length ? ` Nothing reaches ${alone.map((token) => `“${token}”`).join(", ")}: its output is zero.` : "");
      graph.setAttribute("aria-label", `A graph of ${n} tokens with ${edges.size} edges`);
    }

    function toggle(r, s) {
      const key = `${r} ${s}`, gone = edges.delete(key);
      if (!gone) edges.add(key);
      show(`“${tokens[r]}” ${gone ? "no longer attends" : "attends"} to “${tokens[s]}”. `);
      mark(r, s);
    }

    function mark(r, s) {
      graph.querySelector(".chosen")?.classList.remove("chosen");
      arcs.get(`${r} ${s}`).classList.add("chosen");
      cursor.setAttribute("x", left + s * CELL);
      cursor.setAttribute("y", top + r * CELL);
      cursor.setAttribute("visibility", "visible");
    }

    const move = (r, s) => {
      mark(r, s);
      said.textContent = `“${tokens[r]}” ${edges.has(`${r} ${s}`) ? "attends" : "does not attend"} to “${tokens[s]}”.`;
    };
    walkCells(matrix, n, n, { move, act: toggle });
    const begin = (name) => {
      edges = new Set(graphs[name].map(([r, s]) => `${r} ${s}`));
      show();
    };
    choose(bar, "Graph", Object.keys(graphs).map((name) => [name, name]), begin);
    begin(Object.keys(graphs)[0]);
  });
})();
