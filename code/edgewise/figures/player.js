(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (parent, tag, attributes, text) => {
    const svg = tag === "svg" || parent.namespaceURI === SVG;
    const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };

  function enhance(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const rows = data.receivers.length, columns = data.senders.length, last = data.moments.length - 1;
    root.querySelector("img").remove();
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", data.title);

    const bar = make(root, "div", { class: "bar" });
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const play = make(bar, "button", { type: "button" }, "Play");
    const slider = make(bar, "input", { type: "range", min: 0, max: last, value: last, "aria-label": "Moment" });
    const label = make(bar, "output");
    const views = make(root, "div", { class: "views" });
    const status = make(root, "p", { "aria-live": "polite" });

    const wide = 18 * Math.max(rows, columns) + 40, high = Math.max(0.8 * wide, 150);
    const graph = make(views, "svg", { viewBox: `0 0 ${wide} ${high}`, role: "img" });
    const step = { s: (wide - 40) / columns, r: (wide - 40) / rows };
    const at = (size, i) => 20 + (i + 0.5) * size;
    const edges = [];
    for (let r = 0; r < rows; r++) {
      for (let s = 0; s < columns; s++) {
        edges.push(make(graph, "line", { class: "edge", x1: at(step.s, s), y1: 38, x2: at(step.r, r), y2: high - 40 }));
      }
    }
    data.senders.forEach((t, s) => make(graph, "text", { x: at(step.s, s), y: 26 }, t));
    data.receivers.forEach((t, r) => make(graph, "text", { x: at(step.r, r), y: high - 27 }, t));
    make(graph, "text", { x: wide / 2, y: 8 }, "is heard");
    make(graph, "text", { x: wide / 2, y: high - 8 }, "listens");

    const cell = 18, left = 34, top = 34;
    const size = `0 0 ${left + columns * cell + 4} ${top + rows * cell + 4}`;
    const matrix = make(views, "svg", {
      viewBox: size, tabindex: 0, role: "application",
      "aria-label": "Weights: rows listen, columns are heard. Arrow keys move from cell to cell.",
    });
    data.senders.forEach((t, s) => make(matrix, "text", { x: left + (s + 0.5) * cell, y: top - 12 }, t));
    data.receivers.forEach((t, r) => make(matrix, "text", { x: left - 14, y: top + (r + 0.5) * cell }, t));
    const cells = [];
    for (let r = 0; r < rows; r++) {
      for (let s = 0; s < columns; s++) {
        const box = { x: left + s * cell, y: top + r * cell, width: cell, height: cell };
        const rect = make(matrix, "rect", { class: "weight", ...box });
        rect.addEventListener("pointerenter", () => choose(r, s));
        rect.addEventListener("pointerdown", () => choose(r, s));
        cells.push(rect);
      }
    }

    let moment = last, chosen = null, timer = null;
    const weight = (r, s) => data.weights[moment][r][s] / 1000;
    const announce = () => {
      if (!chosen) { status.textContent = "Point at a cell, or move with the arrow keys, to read a weight."; return; }
      const [r, s] = chosen;
      status.textContent =
        `${data.moments[moment]}: “${data.receivers[r]}” (${r + 1}) gives “${data.senders[s]}” (${s + 1}) ${weight(r, s).toFixed(3)}`;
    };
    function choose(r, s) {
      if (chosen) [cells, edges].forEach((list) => list[chosen[0] * columns + chosen[1]].classList.remove("chosen"));
      chosen = [r, s];
      [cells, edges].forEach((list) => list[r * columns + s].classList.add("chosen"));
      announce();
    }
    function show(next) {
      moment = next;
      slider.value = next;
      slider.setAttribute("aria-valuetext", data.moments[next]);
      label.textContent = data.moments[next];
      for (let i = 0; i < cells.length; i++) {
        const w = weight(Math.floor(i / columns), i % columns);
        cells[i].setAttribute("fill-opacity", w);
        edges[i].setAttribute("stroke-opacity", w < 0.02 ? 0 : w);
        edges[i].setAttribute("stroke-width", 0.5 + 2.5 * w);
      }
      graph.setAttribute("aria-label", `${data.title}, ${data.moments[next]}, as a graph`);
      announce();
    }
    function stop() { clearInterval(timer); timer = null; play.textContent = still.matches ? "Next" : "Play"; }
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (still.matches) return show(moment === last ? 0 : moment + 1);
      if (moment === last) show(0);
      play.textContent = "Pause";
      timer = setInterval(() => (moment === last ? stop() : show(moment + 1)), 700);
    });
    stop();
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
    matrix.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!move) return;
      event.preventDefault();
      if (!chosen) return choose(0, 0);
      const [r, s] = chosen;
      choose(Math.min(Math.max(r + move[0], 0), rows - 1), Math.min(Math.max(s + move[1], 0), columns - 1));
    });
    show(last);
  }

  for (const root of document.querySelectorAll(".edgewise-player:not([role])")) enhance(root);
})();
