// Draws a translation's three graphs: source tokens above, target tokens below, an edge as strong as its weight.
(() => {
  "use strict";

  const { SVG, make } = EdgewiseBase;
  const FAINT = 0.03;  // edges with a smaller weight are not drawn
  const MANY = 40;  // cut edges: from here on they are faint
  const BETWEEN = 150;  // from source to target

  const archOf = (distance) => 16 + 84 * (1 - Math.exp(-distance / 260));

  // The path of an edge, and its middle.
  function pathOf({ kind, receiver, sender }, { xs, xt, top, bottom }) {
    if (kind === "e2d") {
      const [x1, x2, y1, y2] = [xs(sender), xt(receiver), top + 12, bottom - 14];
      return { d: `M${x1} ${y1}L${x2} ${y2}`, middle: [(x1 + x2) / 2, (y1 + y2) / 2] };
    }
    const x = kind === "e2e" ? xs : xt, up = kind === "e2e" ? -1 : 1;
    const y = kind === "e2e" ? top - 12 : bottom + 14, x1 = x(sender), x2 = x(receiver);
    if (x1 === x2) {
      return { d: `M${x1 - 5} ${y}C${x1 - 15} ${y + up * 22} ${x1 + 15} ${y + up * 22} ${x1 + 5} ${y}`, middle: [x1, y + up * 16] };
    }
    const height = archOf(Math.abs(x1 - x2)) * (x1 < x2 ? 1 : 0.75);  // to the left: below those to the right
    return { d: `M${x1} ${y}Q${(x1 + x2) / 2} ${y + up * 2 * height} ${x2} ${y}`, middle: [(x1 + x2) / 2, y + up * height] };
  }

  // `choose` is told the edge that is pointed at, how ("keyboard" or "pointer"), and whether it is again the same
  // after a new drawing; `toggle` the one to cut.
  class GraphDrawing {
    constructor(svg, { choose, toggle }) {
      Object.assign(this, { svg, choose, toggle, edges: [], chosen: null });
      const edgeAt = (event) => this.edges[event.target.closest?.("[data-edge]")?.dataset.edge];
      svg.addEventListener("pointermove", (event) => {
        const edge = edgeAt(event);
        if (edge && edge !== this.chosen) this.mark(edge, "pointer");
      });
      svg.addEventListener("click", (event) => {
        const edge = edgeAt(event);
        if (edge) this.toggle(edge);
      });
      svg.addEventListener("keydown", (event) => this.walk(event));
    }

    // edges: {kind, receiver, sender, weight, before, cut}; predictions: {text, before, after} for each target
    // token, the probability of the next piece.
    show({ sources, targets, edges, predictions }) {
      const longest = Math.max(...[...sources, ...targets].map((token) => token.length));
      const width = Math.max(sources.length, targets.length) * Math.max(44, 7.4 * longest + 14);
      const place = (count) => (i) => Math.round(((i + 0.5) * width) / count);
      const arch = archOf(width) + 14, top = arch + 12, bottom = top + BETWEEN, floor = bottom + arch + 16;
      const where = { xs: place(sources.length), xt: place(targets.length), top, bottom };
      this.svg.replaceChildren();
      this.svg.setAttribute("viewBox", `0 0 ${width} ${floor + 60}`);
      this.svg.style.minWidth = `${Math.round(0.72 * width)}px`;
      this.svg.style.maxWidth = `${Math.round(1.25 * width)}px`;
      const drawn = edges.filter((edge) => Math.max(edge.weight, edge.before) >= FAINT);
      drawn.sort((a, b) => b.cut - a.cut || a.weight - b.weight);  // what is left lies above what is cut
      this.svg.classList.toggle("crowded", drawn.filter(({ cut }) => cut).length > MANY);
      drawn.forEach((edge) => this.draw(edge, where));
      drawn.forEach((edge, number) => make(this.svg, "path", { class: "hit", d: edge.d, "data-edge": number }));
      sources.forEach((token, i) => make(this.svg, "text", { x: where.xs(i), y: top }, token));
      targets.forEach((token, i) => make(this.svg, "text", { x: where.xt(i), y: bottom }, token));
      predictions.forEach((prediction, i) => this.predict(prediction, where.xt(i), floor));
      this.edges = drawn;
      const before = this.chosen;
      this.chosen = before && drawn.find((edge) => ["kind", "receiver", "sender"].every((part) => edge[part] === before[part]));
      this.chosen?.line.classList.add("chosen");
      if (this.chosen) this.choose(this.chosen, this.how, true);  // its weight may be another now
    }

    draw(edge, where) {
      const { d, middle: [x, y] } = pathOf(edge, where), w = edge.cut ? edge.before : edge.weight;
      edge.d = d;
      edge.line = make(this.svg, "path", {
        class: `edge ${edge.kind}${edge.cut ? " cut" : ""}`, d,
        "stroke-width": (edge.cut ? 1.5 : 0.75 + 5 * w).toFixed(2),
        "stroke-opacity": (0.2 + 0.8 * Math.min(1, 1.5 * w)).toFixed(2),
      });
      if (edge.cut) make(this.svg, "text", { class: "cut", x, y }, "×");
    }

    predict({ text, before, after }, x, y) {
      const bar = (kind, value, from) => make(this.svg, "rect", { class: kind, x: x - 18 + from, y: y + 34 - 24 * value, width: 16, height: 24 * value });
      make(this.svg, "text", { class: "next", x, y }, text);
      bar("before", before, 0);
      bar("after", after, 19);
      const [was, is] = [before, after].map((value) => Math.round(100 * value));
      if (was !== is) make(this.svg, "text", { class: "percent", x, y: y + 47 }, `${was}→${is}`);
    }

    mark(edge, how) {
      this.chosen?.line.classList.remove("chosen");
      Object.assign(this, { chosen: edge, how });
      edge.line.classList.add("chosen");
      this.choose(edge, how);
    }

    // Left and right: the receiver's other edges. Up and down: other receivers. Enter or space: cut or mend.
    walk(event) {
      const turns = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (!this.edges.length || !(turns[event.key] || event.key === "Enter" || event.key === " ")) return;
      event.preventDefault();
      const order = [...this.edges].sort((a, b) => rank(a) - rank(b)), at = order.indexOf(this.chosen);
      if (at < 0) return this.mark(order[0], "keyboard");
      if (!turns[event.key]) return this.toggle(this.chosen);
      const [down, right] = turns[event.key], same = (edge) => sameReceiver(edge, this.chosen);
      const next = right
        ? order[at + right]
        : down > 0 ? order.slice(at).find((edge) => !same(edge)) : order.slice(0, at).findLast((edge) => !same(edge));
      if (next && (!right || same(next))) this.mark(next, "keyboard");
    }
  }

  const sameReceiver = (a, b) => a.kind === b.kind && a.receiver === b.receiver;
  const rank = ({ kind, receiver, sender }) => (["e2e", "e2d", "d2d"].indexOf(kind) * 1e3 + receiver) * 1e3 + sender;

  // Offers a drawing as a file, with its style inside.
  function saveAsPicture(svg, style, name) {
    const copy = svg.cloneNode(true);
    copy.setAttribute("xmlns", SVG);
    copy.removeAttribute("style");
    copy.querySelectorAll(".hit").forEach((hit) => hit.remove());
    copy.prepend(Object.assign(document.createElementNS(SVG, "style"), { textContent: style }));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([copy.outerHTML], { type: "image/svg+xml" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href));
  }

  globalThis.EdgewiseDrawing = { GraphDrawing, saveAsPicture };
})();
