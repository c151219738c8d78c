// Chapter 1: one receiver at work. Its scores become weights, and the weights a weighted sum of values.
(() => {
  "use strict";

  const { choose, enhance, make, slide, walkCells } = EdgewiseBase;
  const ROW = 28, CELL = 28, STRIP = 76, HIGH = 18, BAR = 44;

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  // Minus signs as the page sets them, and no minus before a zero.
  const fixed = (x, digits) => x.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");

  // The shift by the largest score changes no weight, and keeps the exponentials finite.
  function softmax(scores, temperature) {
    const highest = Math.max(...scores), exps = scores.map((s) => Math.exp((s - highest) / temperature));
    return exps.map((x) => x / sum(exps));
  }

  // A vector as a row of cells: the size of a number is the cell's opacity, its sign the colour and a bar.
  function strip(parent, x, y, width) {
    const cell = STRIP / width, group = make(parent, "g", { class: "strip" }), title = make(group, "title");
    const cells = Array.from({ length: width }, (_, i) => {
      const box = make(group, "rect", { x: x + i * cell, y: y - HIGH / 2, width: cell, height: HIGH });
      const place = { x: x + (i + 0.5) * cell, y: y + 0.5, class: cell < 24 ? "tiny" : "small" };
      const bar = { x: x + (i + 0.25) * cell, y: y + HIGH / 2 - 3, width: cell / 2, height: 1.5, class: "minus" };
      return { box, minus: make(group, "rect", bar), text: cell < 15 ? null : make(group, "text", place) };
    });
    return (numbers, largest) => {
      title.textContent = numbers.map((x) => fixed(x, 4)).join(", ");
      numbers.forEach((number, i) => {
        const { box, minus, text } = cells[i], negative = number < 0 && Math.abs(number) > 0.005 * largest;
        box.setAttribute("class", negative ? "negative" : "positive");
        box.setAttribute("fill-opacity", 0.5 * Math.min(1, Math.abs(number) / largest));
        minus.setAttribute("visibility", negative && !text ? "visible" : "hidden");
        if (text) text.textContent = fixed(number, Math.abs(number) < 9.95 ? 1 : 0);
      });
    };
  }

  enhance("receiver", (root, { tokens, q, k, v, first }) => {
    const n = tokens.length, width = v[0].length, largest = Math.max(...v.flat().map(Math.abs)) || 1;
    const scores = q.map((query) => k.map((key) => dot(query, key) / Math.sqrt(query.length)));
    const visited = new Set();
    let receiver = first, temperature = 1;

    const bar = make(root, "div", { class: "bar" }), panels = make(root, "div", { class: "panels" });
    const said = make(root, "p", { "aria-live": "polite" });
    const select = choose(bar, "Receiver", tokens.map((token, i) => [i, token]), (i) => turn(Number(i)));
    const marks = `temperature-${document.querySelectorAll(".receiver datalist").length}`;
    const slider = slide(bar, "Temperature", { min: -1, max: 1, step: 0.05, value: 0 }, heat);
    slider.setAttribute("list", marks);  // the mark at T = 1, whose logarithm is 0
    make(make(bar, "datalist", { id: marks }), "option", { value: 0 });
    const shown = make(slider.parentNode, "output");
    make(bar, "button", { type: "button" }, "T = 1").addEventListener("click", () => {
      slider.value = 0;
      heat(0);
    });

    // The work: a line for each sender, and the receiver to the right of them.
    const longest = Math.max(...tokens.map((token) => token.length)), left = Math.max(44, 7 * longest + 10);
    const score = left + 38, weight = left + 44, values = weight + 82, end = values + STRIP, at = end + 46;
    const high = 30 + Math.max(n, 3) * ROW, middle = 30 + n * ROW / 2;
    const work = make(panels, "svg", { class: "work", role: "img", viewBox: `0 0 ${at + STRIP + 2} ${high}` });
    for (const [x, text] of [[score - 14, "score"], [weight + 38, "weight"], [values + STRIP / 2, "value"]]) {
      make(work, "text", { x, y: 12, class: "head" }, text);
    }
    const senders = tokens.map((token, i) => {
      const y = 30 + (i + 0.5) * ROW;
      make(work, "text", { x: left - 6, y, class: "end" }, token);
      const number = make(work, "text", { x: score, y, class: "end number score" });
      make(work, "rect", { x: weight, y: y - 7, width: BAR, height: 14, class: "frame" });
      const box = make(work, "rect", { x: weight, y: y - 7, height: 14, class: "share" });
      const share = make(work, "text", { x: weight + 74, y, class: "end number share-number" });
      strip(work, values, y, width)(v[i], largest);
      const d = `M${end + 3} ${y}C${end + 28} ${y} ${end + 18} ${middle} ${at - 3} ${middle}`;
      return { number, box, share, line: make(work, "path", { class: "edge", d }) };
    });
    const name = make(work, "text", { x: at + STRIP / 2, y: middle - 20, class: "head" });
    const received = strip(work, at, middle, width);
    make(work, "text", { x: at + STRIP / 2, y: middle + 20, class: "small" }, "weighted sum");

    // The matrix: rows fill as receivers are visited.
    const side = Math.max(20, 7 * longest + 8), top = longest > 3 ? 7 * longest + 8 : 22;
    const matrix = make(panels, "svg", {
      class: "matrix", role: "application", tabindex: 0, viewBox: `0 0 ${side + n * CELL + 2} ${top + n * CELL + 2}`,
      "aria-label": "Weights: a row for each receiver, a column for each sender. Up and down choose the receiver, left and right read its weights.",
    });
    matrix.style.maxWidth = `${1.1 * (side + n * CELL)}px`;
    const cells = tokens.map((token, r) => {
      make(matrix, "text", { x: side - 6, y: top + (r + 0.5) * CELL, class: "end" }, token);
      const x = side + (r + 0.5) * CELL, turned = longest > 3 ? `rotate(-90 ${x} ${top - 6})` : "";
      make(matrix, "text", { x, y: top - 6, transform: turned, class: turned ? "start" : "" }, token);
      return tokens.map((_, s) => {
        const box = { x: side + s * CELL, y: top + r * CELL, width: CELL, height: CELL };
        const full = make(matrix, "rect", { class: "weight", "fill-opacity": 0, ...box });
        const cell = make(matrix, "rect", { class: "cell", ...box });
        cell.addEventListener("click", () => turn(r));
        return { full, cell, title: make(cell, "title") };
      });
    });
    const outline = make(matrix, "rect", { class: "cursor", x: side, width: n * CELL, height: CELL });
    const point = make(matrix, "rect", { class: "point", width: CELL - 6, height: CELL - 6, visibility: "hidden" });
    const walkTo = walkCells(matrix, n, n, { move: read, act: read });

    function row(r) {
      const weights = softmax(scores[r], temperature);
      weights.forEach((w, s) => {
        const { full, cell, title } = cells[r][s];
        full.setAttribute("fill-opacity", w);
        cell.classList.add("visited");
        title.textContent = `“${tokens[r]}” attends to “${tokens[s]}”: ${fixed(w, 4)}`;
      });
      return weights;
    }

    function sentence(weights) {
      const most = Math.max(...weights), best = tokens.filter((_, s) => weights[s] > most - 1e-4);
      const names = best.map((token) => `“${token}”`).join(", "), number = fixed(most, 2);
      const entropy = -sum(weights.map((w) => (w > 0 ? w * Math.log(w) : 0)));
      const share = best.length > 1 ? `${number} each` : number;
      const spread = `entropy ${fixed(entropy, 2)}; ${fixed(Math.log(n), 2)} if even`;
      let how = `the largest weight, ${share}, on ${names}`;
      if (n > 1 && best.length === n) how = `all senders get the same weight, ${number}`;
      else if (n > 1 && most < 1.3 / n) how = `nearly even weights, the largest ${share} on ${names}`;
      else if (sum(weights.filter((w) => w > most - 1e-4)) > 0.95) how = `nearly all weight on ${names}, ${share}`;
      return `T = ${heatName()}, receiver “${tokens[receiver]}”: ${how} (${spread}).`;
    }

    const heatName = () => String(Number(temperature.toPrecision(2)));

    function show() {
      visited.add(receiver);
      visited.forEach(row);
      const weights = row(receiver), out = v[0].map((_, i) => dot(weights, v.map((value) => value[i])));
      senders.forEach(({ number, box, share, line }, s) => {
        number.textContent = fixed(scores[receiver][s], 2);
        box.setAttribute("width", BAR * weights[s]);
        share.textContent = fixed(weights[s], 2);
        line.style.strokeWidth = 0.5 + 11 * weights[s];
      });
      received(out, largest);
      name.textContent = tokens[receiver];
      outline.setAttribute("y", top + receiver * CELL);
      select.value = receiver;
      shown.textContent = `T = ${heatName()}`;
      slider.setAttribute("aria-valuetext", `T = ${heatName()}`);
      work.setAttribute("aria-label", `“${tokens[receiver]}” receives ${out.map((x) => fixed(x, 4)).join(", ")}`);
      said.textContent = sentence(weights);
      return weights;
    }

    function turn(r) {
      receiver = r;
      walkTo(r, 0);
      point.setAttribute("visibility", "hidden");
      show();
    }

    function read(r, s) {
      const same = r === receiver;
      receiver = r;
      const weights = show();
      point.setAttribute("x", side + s * CELL + 3);
      point.setAttribute("y", top + r * CELL + 3);
      point.setAttribute("visibility", "visible");
      if (same) said.textContent = `“${tokens[r]}” attends to “${tokens[s]}” with weight ${fixed(weights[s], 2)}.`;
    }

    function heat(exponent) {
      temperature = 10 ** exponent;
      show();
    }

    turn(first);
  });
})();
