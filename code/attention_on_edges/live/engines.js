// Chapter 5: the same sum by three engines. Steps and counts come with the data; here they are drawn.
(() => {
  "use strict";

  const { choose, enhance, make } = EdgewiseBase;
  const LINE = 13, WIDE = 32, NARROW = 9, GAP = 4, PAUSE = 2500;

  const longest = (texts) => Math.max(...texts.map((text) => text.length));

  // Senders above, receivers below, an edge between each pair. Returns a function that picks out edges.
  function drawGraph(panels, tokens, edges) {
    const step = Math.max(38, 7 * longest(tokens) + 10), wide = Math.max(tokens.length * step, 120);
    const svg = make(panels, "svg", { class: "graph", role: "img", viewBox: `0 0 ${wide} 176` });
    svg.style.maxWidth = `${1.2 * wide}px`;
    svg.setAttribute("aria-label", `A graph of ${tokens.length} tokens with ${edges.length} edges`);
    const x = (i) => (i + 0.5) * wide / tokens.length;
    make(svg, "text", { x: wide / 2, y: 8, class: "head" }, "senders");
    make(svg, "text", { x: wide / 2, y: 168, class: "head" }, "receivers");
    const paths = edges.map(([r, s]) => make(svg, "path", { class: "edge", d: `M${x(s)} 38L${x(r)} 132` }));
    for (const [y, dot] of [[28, 38], [148, 134]]) {
      tokens.forEach((token, i) => {
        make(svg, "circle", { cx: x(i), cy: dot, r: 3, class: "dot" });
        make(svg, "text", { x: x(i), y }, token);
      });
    }
    return (chosen) => paths.forEach((path, e) => path.classList.toggle("faint", Boolean(chosen) && !chosen.includes(e)));
  }

  // A table of memory: a row for each edge or token, a column for each tensor. Returns cells[column][row],
  // and where the table ends.
  function drawTable(svg, { title, rows, columns }, corner, top, most) {
    const left = corner + 6.4 * longest(rows) + 8;
    const head = top + 20 + 6.2 * longest(columns.map(([name]) => name));
    make(svg, "text", { x: corner, y: top + 6, class: "start head" }, title);
    rows.forEach((text, i) => make(svg, "text", { x: left - 6, y: head + (i + 0.5) * LINE, class: "end label" }, text));
    let x = left;
    const cells = columns.map(([name, width]) => {
      const wide = Math.max(NARROW, WIDE * width / most), middle = x + wide / 2;
      make(svg, "text", { x: middle, y: head - 5, transform: `rotate(-90 ${middle} ${head - 5})`, class: "start label" }, name);
      const drawn = rows.map((_, i) =>
        make(svg, "rect", { class: "memory", x, y: head + i * LINE + 1, width: wide, height: LINE - 2 }));
      // A tick between numbers, where they are few enough to be told apart.
      if (width > 1 && wide / width >= 3) {
        const ticks = Array.from({ length: width - 1 }, (_, i) => x + (i + 1) * wide / width);
        const d = ticks.flatMap((at) => rows.map((_, i) => `M${at} ${head + i * LINE + 1}v${LINE - 2}`)).join("");
        make(svg, "path", { class: "ticks", d });
      }
      x += wide + GAP;
      return drawn;
    });
    return { cells, bottom: head + rows.length * LINE + 8 };
  }

  // How wide a table will be, its title included.
  function widthOf({ title, rows, columns }, most) {
    const cells = columns.map(([, width]) => Math.max(NARROW, WIDE * width / most) + GAP);
    return Math.max(6.4 * longest(rows) + 8 + cells.reduce((a, b) => a + b, 0), 7 * title.length);
  }

  // Tiles in fast memory: dashed, since nothing of them stays. Returns the cells of each tile.
  function drawBlocks(svg, blocks, top, width) {
    make(svg, "text", { x: 0, y: top + 6, class: "start head" }, "scores in fast memory (not written out)");
    let [x, y, lowest] = [0, top + 16, top + 16];
    const drawn = blocks.map(({ receivers, senders, cells }) => {
      const left = 6.4 * longest(receivers) + 8, head = 6.4 * longest(senders) + 4;
      const wide = left + senders.length * LINE, high = head + receivers.length * LINE;
      if (x > 0 && x + wide > width) [x, y] = [0, lowest + 8];
      const [x0, y0] = [x + left, y + head];
      receivers.forEach((text, i) => make(svg, "text", { x: x0 - 5, y: y0 + (i + 0.5) * LINE, class: "end label" }, text));
      senders.forEach((text, i) => {
        const at = x0 + (i + 0.5) * LINE;
        make(svg, "text", { x: at, y: y0 - 5, transform: `rotate(-90 ${at} ${y0 - 5})`, class: "start label" }, text);
      });
      const full = new Set(cells.map(String)), found = [];
      for (let r = 0; r < receivers.length; r++) {
        for (let c = 0; c < senders.length; c++) {
          const box = { x: x0 + c * LINE, y: y0 + r * LINE, width: LINE, height: LINE };
          found.push([make(svg, "rect", { class: "fast", ...box }), full.has(`${r},${c}`)]);
        }
      }
      x += wide + 12;
      lowest = Math.max(lowest, y + high);
      return found;
    });
    return { drawn, bottom: lowest + 8 };
  }

  // The last step: a bar for each engine.
  function compare(svg, totals, chosen, width) {
    const most = Math.max(...totals.map(([, total]) => total));
    make(svg, "text", { x: 0, y: 6, class: "start head" }, "numbers written to memory");
    totals.forEach(([name, total], i) => {
      const y = 36 + 40 * i;
      make(svg, "text", { x: 0, y: y - 8, class: `start ${name === chosen ? "head" : ""}` }, name);
      make(svg, "rect", { class: "total", x: 0, y, width: (width - 50) * total / most, height: 14 });
      make(svg, "text", { x: (width - 50) * total / most + 6, y: y + 7, class: "start number" }, total.toLocaleString("en"));
    });
  }

  enhance("engines", (root, { tokens, edges, engines }) => {
    const totals = Object.entries(engines).map(([name, { steps }]) => [name, steps[steps.length - 1].total]);
    const widths = Object.values(engines).flatMap(({ tables }) => tables.flatMap(({ columns }) => columns));
    const most = Math.max(...widths.map(([, width]) => width));
    const bar = make(root, "div", { class: "bar" }), said = make(root, "p", { "aria-live": "polite" });
    const panels = make(root, "div", { class: "panels" });
    let engine = Object.keys(engines)[0], at = 0, timer = null;

    choose(bar, "Engine", Object.keys(engines).map((name) => [name, name]), (name) => {
      stop();
      [engine, at] = [name, 0];
      show();
    });
    const button = (text, act) => {
      const made = make(bar, "button", { type: "button" }, text);
      made.addEventListener("click", act);
      return made;
    };
    const back = button("Back", () => { stop(); go(at - 1); });
    const next = button("Next", () => { stop(); go(at + 1); });
    const moving = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    const play = moving ? button("Play", () => (timer === null ? start() : stop())) : null;

    const pick = drawGraph(panels, tokens, edges);
    const memory = make(panels, "svg", { class: "store", role: "img" });
    const last = () => engines[engine].steps.length - 1;

    function start() {
      if (at === last()) go(0);
      timer = setInterval(() => {
        go(at + 1);
        if (at === last() || !root.isConnected) stop();
      }, PAUSE);
      play.textContent = "Stop";
    }

    function stop() {
      clearInterval(timer);
      timer = null;
      if (play) play.textContent = "Play";
    }

    function go(step) {
      at = Math.min(Math.max(step, 0), last());
      show();
    }

    // All memory of an engine is drawn from its first step on, so that nothing moves while it fills.
    function draw() {
      const { tables, blocks, steps } = engines[engine], cells = [];
      const wide = Math.max(380, ...tables.map((table) => widthOf(table, most)));
      let [x, y, lowest] = [0, 0, 0];
      for (const table of tables) {  // beside the one before, where there is room
        const width = widthOf(table, most);
        if (x > 0 && x + width > wide) [x, y] = [0, lowest];
        const { cells: drawn, bottom } = drawTable(memory, table, x, y, most);
        [x, lowest] = [x + width + 16, Math.max(lowest, bottom)];
        cells.push(drawn);
      }
      let tiles = [];
      if (blocks.length) ({ drawn: tiles, bottom: lowest } = drawBlocks(memory, blocks, lowest, wide));
      memory.setAttribute("viewBox", `0 0 ${wide} ${lowest}`);
      memory.style.maxWidth = `${1.25 * wide}px`;
      for (const [i, step] of steps.slice(0, at + 1).entries()) {
        for (const [table, column, rows] of step.writes) {
          for (const row of rows) cells[table][column][row].classList.add(i === at ? "new" : "old");
        }
      }
      for (const block of steps[at].blocks ?? []) {
        for (const [cell, full] of tiles[block]) cell.classList.add(full ? "score" : "masked");
      }
      return wide;
    }

    function show() {
      const step = engines[engine].steps[at];
      memory.replaceChildren();
      const wide = draw();
      if (step.compare) {
        memory.replaceChildren();
        memory.setAttribute("viewBox", `0 0 ${wide} 140`);
        compare(memory, totals, engine, wide);
      }
      pick(step.edges);
      back.setAttribute("aria-disabled", at === 0);
      next.setAttribute("aria-disabled", at === last());
      const count = `${step.written.toLocaleString("en")} numbers written now, ${step.total.toLocaleString("en")} in all.`;
      said.textContent = `Step ${at} of ${last()}. ${step.told} ${step.compare ? "" : count}`.trim();
      memory.setAttribute("aria-label", `Memory written by ${engine}: ${step.total.toLocaleString("en")} numbers`);
    }

    show();
  });
})();
