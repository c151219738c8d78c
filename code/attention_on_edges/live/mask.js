// Chapter 4: a graph beside its mask. A click on a cell takes the edge away, or brings it back.
(() => {
  "use strict";

  const { choose, enhance, make, matrix } = EdgewiseBase;

  enhance("mask", (root, { tokens, graphs }) => {
    const n = tokens.length, bar = make(root, "div", { class: "bar" });
    const panels = make(root, "div", { class: "panels" });
    const said = make(root, "p", { "aria-live": "polite" });
    let edges = new Set();

    const step = Math.max(44, 8 * Math.max(...tokens.map((token) => token.length)) + 12), wide = n * step, middle = 24 + 0.42 * wide;
    const graph = make(panels, "svg", { class: "graph", role: "img", viewBox: `0 0 ${wide} ${2 * middle}` });
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
    const arcs = tokens.map((_, r) => tokens.map((_, s) => make(graph, "path", { class: "edge", d: arc(r, s), "marker-end": "url(#mask-tip)" })));
    tokens.forEach((token, i) => make(graph, "text", { x: x(i), y: middle }, token));
    const { cells, point } = matrix(panels, tokens, tokens, "The mask. Arrow keys move, Enter cuts an edge or brings it back.", { move, act: toggle, hover: mark });

    function show(change = "") {
      cells.forEach((row, r) => row.forEach((cell, s) => {
        cell.classList.toggle("full", edges.has(`${r} ${s}`));
        arcs[r][s].setAttribute("visibility", edges.has(`${r} ${s}`) ? "visible" : "hidden");
      }));
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
      arcs[r][s].classList.add("chosen");
      point(r, s);
    }

    function move(r, s) {
      mark(r, s);
      said.textContent = `“${tokens[r]}” ${edges.has(`${r} ${s}`) ? "attends" : "does not attend"} to “${tokens[s]}”.`;
    }

    const begin = (name) => {
      edges = new Set(graphs[name].map(([r, s]) => `${r} ${s}`));
      show();
    };
    choose(bar, "Graph", Object.keys(graphs).map((name) => [name, name]), begin);
    begin(Object.keys(graphs)[0]);
  });
})();
