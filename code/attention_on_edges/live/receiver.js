// Chapter 1: one receiver at work. Its scores become weights, and the weights a weighted sum of values.
(() => {
  "use strict";

  const { choose, enhance, make, matrix, number, slide } = EdgewiseBase;
  const ROW = 28, STRIP = 76, HIGH = 18, BAR = 44;

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

  // The shift by the largest score changes no weight, and keeps the exponentials finite.
  function softmax(scores, temperature) {
    const highest = Math.max(...scores), exps = scores.map((s) => Math.exp((s - highest) / temperature));
    return exps.map((x) => x / sum(exps));
  }

  // A vector as a row of cells: the size of a number is the cell's opacity, its sign the colour.
  function strip(parent, x, y, width) {
    const cell = STRIP / width, group = make(parent, "g", { class: "strip" });
    const cells = Array.from({ length: width }, (_, i) => [
      make(group, "rect", { x: x + i * cell, y: y - HIGH / 2, width: cell, height: HIGH }),
      make(group, "text", { x: x + (i + 0.5) * cell, y: y + 0.5, class: "small" }),
    ]);
    return (numbers, largest) => numbers.forEach((x, i) => {
      const [box, text] = cells[i];
      box.setAttribute("class", x < 0 ? "negative" : "positive");
      box.setAttribute("fill-opacity", 0.5 * Math.min(1, Math.abs(x) / largest));
      text.textContent = number(x, Math.abs(x) < 9.95 ? 1 : 0);
    });
  }

  enhance("receiver", (root, { tokens, q, k, v, first }) => {
    const n = tokens.length, width = v[0].length, largest = Math.max(...v.flat().map(Math.abs)) || 1;
    const scores = q.map((query) => k.map((key) => dot(query, key) / Math.sqrt(query.length)));
    let receiver = first, temperature = 1;

    const bar = make(root, "div", { class: "bar" }), panels = make(root, "div", { class: "panels" });
    const said = make(root, "p", { "aria-live": "polite" });
    const select = choose(bar, "Receiver", tokens.map((token, i) => [i, token]), (i) => turn(Number(i)));
    const slider = slide(bar, "Temperature", { min: -1, max: 1, step: 0.05, value: 0 }, heat);
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
      const said = make(work, "text", { x: score, y, class: "end number score" });
      make(work, "rect", { x: weight, y: y - 7, width: BAR, height: 14, class: "frame" });
      const box = make(work, "rect", { x: weight, y: y - 7, height: 14, class: "share" });
      const share = make(work, "text", { x: weight + 74, y, class: "end number" });
      strip(work, values, y, width)(v[i], largest);
      const d = `M${end + 3} ${y}C${end + 28} ${y} ${end + 18} ${middle} ${at - 3} ${middle}`;
      return { said, box, share, line: make(work, "path", { class: "edge", d }) };
    });
    const name = make(work, "text", { x: at + STRIP / 2, y: middle - 20, class: "head" });
    const received = strip(work, at, middle, width);
    make(work, "text", { x: at + STRIP / 2, y: middle + 20, class: "small" }, "weighted sum");

    const { svg, cells, box: boxOf, point } = matrix(panels, tokens, tokens, "Weights. Up and down choose the receiver, left and right read its weights.", { move: read, act: read });
    cells.flat().forEach((cell) => cell.classList.add("full"));
    const outline = make(svg, "rect", { class: "cursor", ...boxOf(0, 0), width: n * boxOf(0, 0).width });

    function sentence(weights) {
      const most = Math.max(...weights), best = tokens.filter((_, s) => weights[s] > most - 1e-4).map((token) => `“${token}”`).join(", ");
      const entropy = -sum(weights.map((w) => (w > 0 ? w * Math.log(w) : 0)));
      return `T = ${heatName()}, receiver “${tokens[receiver]}”: the largest weight, ${number(most)}, on ${best} (entropy ${number(entropy)}; ${number(Math.log(n))} if even).`;
    }

    const heatName = () => String(Number(temperature.toPrecision(2)));

    function show() {
      const all = scores.map((row) => softmax(row, temperature)), weights = all[receiver];
      const out = v[0].map((_, i) => dot(weights, v.map((value) => value[i])));
      cells.forEach((row, r) => row.forEach((cell, s) => cell.setAttribute("fill-opacity", all[r][s])));
      senders.forEach(({ said, box, share, line }, s) => {
        said.textContent = number(scores[receiver][s], 2);
        box.setAttribute("width", BAR * weights[s]);
        share.textContent = number(weights[s], 2);
        line.style.strokeWidth = 0.5 + 11 * weights[s];
      });
      received(out, largest);
      name.textContent = tokens[receiver];
      outline.setAttribute("y", boxOf(receiver, 0).y);
      select.value = receiver;
      shown.textContent = `T = ${heatName()}`;
      slider.setAttribute("aria-valuetext", `T = ${heatName()}`);
      work.setAttribute("aria-label", `“${tokens[receiver]}” receives ${out.map((x) => number(x, 4)).join(", ")}`);
      said.textContent = sentence(weights);
      return weights;
    }

    function turn(r) {
      receiver = r;
      point(r, 0);
      show();
    }

    function read(r, s) {
      const same = r === receiver;
      receiver = r;
      const weights = show();
      point(r, s);
      if (same) said.textContent = `“${tokens[r]}” attends to “${tokens[s]}” with weight ${number(weights[s])}.`;
    }

    function heat(exponent) {
      temperature = 10 ** exponent;
      show();
    }

    turn(first);
  });
})();
