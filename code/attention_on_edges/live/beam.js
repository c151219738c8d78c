// Chapter 8: beam search as a tree. Columns are steps, nodes are pieces; a click on a node tells its hypothesis.
(() => {
  "use strict";

  const { enhance, make, number, play, walkCells } = EdgewiseBase;
  const HIGH = 36, ROW = 50, TOP = 26, GAP = 20;

  enhance("beam", (root, { columns, won, text, final }) => {
    const said = make(root, "p", { "aria-live": "polite" });
    const frame = make(root, "div", { class: "frame" });
    const longest = Math.max(...columns.flat().map(({ piece }) => piece.length));
    const box = Math.max(42, 7 * longest + 10), step = box + GAP, first = 14;
    const wide = first + columns.length * step, rows = Math.max(...columns.map((nodes) => nodes.length));
    const high = TOP + rows * ROW;
    const svg = make(frame, "svg", {
      role: "application", tabindex: 0, width: wide, height: high, viewBox: `0 0 ${wide} ${high}`,
      "aria-label": "The beam as a tree: a column is a step, the likeliest hypothesis on top. Arrow keys move from piece to piece.",
    });
    const left = (column) => first + GAP + column * step, middle = (rank) => TOP + (rank + 0.5) * ROW;
    const drawn = columns.map(() => []), nodes = [];
    let chosen = null;

    columns.forEach((candidates, column) => {
      drawn[column].push(make(svg, "text", { x: left(column) + box / 2, y: 10, class: "faint" }, `step ${column + 1}`));
      candidates.forEach(({ parent, state }, rank) => {  // edges lie below all nodes
        const x1 = column ? left(column) - GAP : first, y1 = column ? middle(parent) : middle(0), x2 = left(column);
        const d = `M${x1} ${y1}C${x1 + GAP / 2} ${y1} ${x2 - GAP / 2} ${middle(rank)} ${x2} ${middle(rank)}`;
        drawn[column].push(make(svg, "path", { d, class: `edge ${state}`, "data-won": won[column] === rank }));
      });
    });
    make(svg, "circle", { cx: first - 6, cy: middle(0), r: 6, fill: "currentColor" });
    columns.forEach((candidates, column) => {
      nodes.push(candidates.map(({ piece, score, state }, rank) => {
        const node = make(svg, "g", { class: `node ${state}`, "data-won": won[column] === rank });
        const at = { x: left(column), y: middle(rank) - HIGH / 2, width: box, height: HIGH, rx: 6 };
        make(node, "rect", at);
        if (state === "ended") make(node, "rect", { x: at.x + 3, y: at.y + 3, width: box - 6, height: HIGH - 6, rx: 4 });
        make(node, "text", { x: at.x + box / 2, y: at.y + 12 }, piece);
        make(node, "text", { x: at.x + box / 2, y: at.y + 26, class: "small" }, number(score));
        node.addEventListener("click", () => tell(rank, column));
        drawn[column].push(node);
        return node;
      }));
    });

    const of = (column, state) => columns[column].filter((node) => node.state === state);
    const quoted = (words) => (words ? `“${words}”` : "the start");
    function story(column) {
      const kept = of(column, "kept"), ended = of(column, "ended"), dropped = of(column, "dropped").length;
      const parts = kept.length
        ? [`${kept.length} ${kept.length === 1 ? "hypothesis" : "hypotheses"}, best ${quoted(kept[0].text)} ${number(kept[0].score)}`]
        : [];
      if (ended.length) parts.push(`${ended.map((node) => `${quoted(node.text)} ${number(node.score)}`).join(" and ")} ended`);
      parts.push(`${dropped} ${dropped === 1 ? "candidate" : "candidates"} dropped`);
      const last = column === columns.length - 1;
      return `Step ${column + 1}: ${parts.join("; ")}.`
        + (last ? ` The search is over: ${quoted(final.text)} wins with a score of ${number(final.score)}.` : "");
    }

    function show(column) {
      const last = column === columns.length - 1;
      drawn.forEach((parts, i) => parts.forEach((part) => part.setAttribute("visibility", i <= column ? "visible" : "hidden")));
      for (const part of svg.querySelectorAll("[data-won=true]")) part.classList.toggle("won", last);
      mark(null);
      said.textContent = story(column);
      frame.scrollLeft = left(column) + box + 4 - frame.clientWidth;
    }
    function mark(node) {
      chosen?.classList.remove("chosen");
      chosen = node;
      chosen?.classList.add("chosen");
    }
    function tell(rank, column) {
      run.stop();
      if (column > run.at) run.go(column);
      const place = Math.min(rank, columns[column].length - 1), { text: words, piece, score, state, rated } = columns[column][place];
      mark(nodes[column][place]);
      const [from, to] = [left(column) - GAP, left(column) + box + 4];  // into sight, where the tree is wider than the page
      if (from < frame.scrollLeft) frame.scrollLeft = from;
      if (to > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = to - frame.clientWidth;
      said.textContent = `Step ${column + 1}, “${piece}”: ${quoted(words)} ${state === "ended" ? "has ended" : `is ${state}`}, log-probability ${number(score)}`
        + (rated === null ? "." : `, score ${number(rated)}.`);
    }

    const run = play(root, said, "Step", { last: columns.length - 1, name: (column) => `${column + 1} of ${columns.length}`, wait: 1500 }, show);
    said.before(run.bar);
    walkCells(svg, rows, columns.length, { move: tell });
    const note = make(root, "p", { class: "note" });
    const keys = { kept: "kept in the beam", dropped: "dropped", ended: "ended", won: "the path of the hypothesis that wins" };
    note.append(`Source: “${text}” Numbers are log-probabilities of the hypothesis so far; in a column the likeliest is on top. `);
    for (const [state, meaning] of Object.entries(keys)) {
      const key = make(note, "svg", { class: "key", width: 26, height: 16, viewBox: "0 0 26 16", "aria-hidden": "true" });
      const node = make(key, "g", { class: `node ${state}` });
      make(node, "rect", { x: 2, y: 2, width: 22, height: 12, rx: 4 });
      if (state === "ended") make(node, "rect", { x: 5, y: 5, width: 16, height: 6, rx: 2 });
      note.append(` ${meaning}${state === "won" ? "." : ", "}`);
    }
  });
})();
