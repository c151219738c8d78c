// Chapter 2: one pass of a translator. A row is a step of the decoder, a column a place in the translation, and a
// cell the word that the state of this place would write if the decoder stopped there.
(() => {
  "use strict";

  const { choose, enhance, make, number, slide, walkCells } = EdgewiseBase;
  const STEPS = {
    "embedding": ["reads", "Each place holds the embedding of the word it has read, plus its position."],
    "self-attention": ["looks back", "Each place gathers from itself and from the places before it."],
    "cross-attention": ["looks across", "Each place gathers from the encoded source."],
    "feed-forward": ["digests", "Each place passes through the feed-forward network, alone."],
  };
  const MEANING = { read: "the word it has read", next: "the word to be written", other: "another word" };
  const quoted = (word) => `“${word}”`, percent = (p) => `${(100 * p).toFixed(0)} %`, add = (a, b) => a + b;
  const vector = (numbers, digits = 1) => `(${numbers.map((x) => number(x, digits)).join(", ")}, …)`;

  // Softmax over the senders that there is an edge from.
  function softmax(scores, exists) {
    const highest = Math.max(...scores.filter((_, s) => exists[s]));
    const exps = scores.map((x, s) => (exists[s] ? Math.exp(x - highest) : 0));
    return exps.map((x) => x / exps.reduce(add));
  }

  function bars(parent, rows) {
    const box = make(parent, "div", { class: "bars" });
    for (const [word, p, kind] of rows) {
      make(box, "span", {}, word);
      make(make(box, "span"), "span", { class: kind, style: `width:${100 * p}%` });
      make(box, "span", { class: "number" }, percent(p));
    }
  }

  function table(parent, rows) {
    const box = make(parent, "table");
    for (const cells of rows) {
      const row = make(box, "tr");
      cells.forEach((text, i) => make(row, i ? "td" : "th", { class: i ? "number" : "from" }, text));
    }
  }

  enhance("one_pass", (root, { language: lang, source, read, next, rows, cut, lens, embedded, widths: [wide, narrow], runs }) => {
    const last = rows.length - 1, senders = source.map(([word]) => word), places = read.map(([word]) => word);
    const back = (r) => rows[r][1] === "self-attention", differs = (r, p) => run.tops[r][p][0][0] !== runs[0].tops[r][p][0][0];
    let run = runs[0], step = last, row = last - 1, place = cut[0], head = null;

    // The source, and what the decoder makes of its states after each layer of the encoder.
    const given = make(root, "p", { class: "given" }, "The encoder reads, with these ids: ");
    for (const [word, id] of source) make(make(given, "span", { class: "token" }, word), "small", {}, id);
    make(root, "p", {}, "What the decoder translates if it attends to the encoder's states as they are");
    const list = make(root, "ul");
    lens.forEach((text, i) => {
      const item = make(list, "li", {}, `after ${i ? `layer ${i}` : "the embedding"}: `), final = runs[0].said.split(" ");
      text.split(" ").forEach((word, w) => make(item, word === final[w] ? "span" : "b", { lang, translate: "no" }, `${word} `));
    });

    const bar = make(root, "div", { class: "bar" }), steps = slide(bar, "Step", { min: 0, max: last, value: last }, go);
    const toggle = make(bar, "button", { type: "button" }, `Cut ${senders[cut[1]]} → ${next[cut[0]]}`);
    const said = make(root, "p", { class: "said", "aria-live": "polite" });
    const grid = make(root, "div", { role: "grid", style: `--places:${places.length}`, "aria-label": "What each state would write: a row for each step, a column for each place" });
    const top = make(grid, "div", { role: "row" });
    make(top, "div", { role: "columnheader" }, "ids that the decoder reads");
    for (const [, id] of read) make(top, "div", { role: "columnheader", class: "id" }, id);
    const labels = rows.map(([layer, name], r) => [r === last ? "writes" : STEPS[name][0], layer === null ? name : `layer ${layer + 1}, ${name}`]);
    const lines = labels.map(([does, what], r) => {
      const line = make(grid, "div", { role: "row" }), label = make(line, "div", { role: "rowheader" });
      make(label, "b", {}, `${does} `);
      make(label, "small", {}, what);
      return places.map((_, p) => {
        const cell = make(line, "div", { role: "gridcell", lang, translate: "no" });
        cell.addEventListener("click", () => select(r, p));
        return cell;
      });
    });
    const note = make(root, "p", { class: "note" }, "It would write ");
    for (const [kind, text] of Object.entries(MEANING)) make(note, "span", { class: `key ${kind}` }, text);
    note.append("; the paler, the less sure. “_” is a space, “-s” continues a word. A place is called by its word in the last row, which the next column reads. "
      + "All rows are read by the final norm and the output layer, which were trained for the last row.");

    const panels = make(root, "div", { class: "panels" }), which = make(panels, "b");
    const [writes, gathers, works] = ["It would write", "It gathered from", "The arithmetic"].map((name) => {
      const section = make(panels, "div");
      make(section, "span", { class: "title" }, name);
      return { section, box: make(section, "div") };
    });
    const heads = choose(works.section, "Head", Object.values(runs[0].dots)[0].map((_, h) => [h, h + 1]), (h) => { head = Number(h); work(); });
    works.box.before(heads.parentNode);

    function likeliest() {
      const found = run.tops[row][place].map(([word, p]) => [word, p, word === next[place] ? "next" : word === places[place] ? "read" : "other"]);
      writes.box.replaceChildren();
      bars(writes.box, [...found, ["all others", Math.max(0, 1 - found.map(([, p]) => p).reduce(add)), "other"]]);
    }

    function work() {
      gathers.box.replaceChildren();
      works.box.replaceChildren();
      heads.parentNode.hidden = !run.dots[row];
      if (run.dots[row]) return attention();
      const [learned, position] = embedded.map((vectors) => vectors[place]), id = read[place][1];
      gathers.box.append(row ? "itself alone" : `the word it has read, ${quoted(places[place])}, id ${id}, and its position, ${place}`);
      if (row) works.box.append("No edges: the same small network changes each state by itself, and its output is added to the state.");
      else table(works.box, [[`√${wide} × row ${id} of the embedding`, vector(learned, 2)], [`+ position ${place}`, vector(position, 2)],
        ["= the state", vector(learned.map((x, i) => x + position[i]), 2)]]);
    }

    function attention() {
      const from = back(row) ? next.slice(0, place + 1) : senders;
      const kept = from.map((_, s) => back(row) || run === runs[0] || place !== cut[0] || s !== cut[1]);
      const scores = run.dots[row].map((dots) => from.map((_, s) => dots[place][s] / Math.sqrt(narrow)));
      const weights = scores.map((each) => softmax(each, kept)), highest = weights.map((each) => Math.max(...each));
      const mean = from.map((word, s) => [word, weights.map((each) => each[s]).reduce(add) / weights.length, "weight"]);
      const ordered = (found) => found.sort((a, b) => b[1] - a[1]);
      bars(gathers.box, ordered(mean.filter(([, p]) => p >= 0.03)));
      make(gathers.box, "p", { class: "note" }, "Mean weights of all heads, from 3 %.");
      heads.value = head ?? highest.indexOf(Math.max(...highest));
      const w = weights[heads.value], values = run.values[row][heads.value], dots = run.dots[row][heads.value][place];
      table(works.box, [["from", "q · k", `÷ √${narrow}`, "weight", "value"], ...from.map((word, s) => [back(row) ? `${word} (reads ${places[s]})` : word, number(dots[s]),
        number(scores[heads.value][s]), kept[s] ? number(w[s]) : "cut", vector(values[s])])]);
      const terms = ordered(from.map((word, s) => [word, w[s]])).filter(([, x]) => x >= 0.005);
      const total = values[0].map((_, i) => from.map((_, s) => w[s] * values[s][i]).reduce(add));
      make(works.box, "p", {}, `Received: ${terms.slice(0, 3).map(([word, x]) => `${number(x)} × what ${quoted(word)} hands over`).join(" + ")}`
        + `${terms.length > 3 ? " + …" : ""} = ${vector(total)}, ${total.length} of its ${narrow} numbers.`);
    }

    function show() {
      lines.forEach((cells, r) => cells.forEach((cell, p) => {
        const [word, sure] = run.tops[r][p][0], kind = run.kinds[r][p], chosen = r === row && p === place;
        cell.textContent = word;
        cell.className = `${kind} ${differs(r, p) ? "changed" : ""} ${word.length > 4 ? "long" : ""}`;
        cell.style.cssText = `--sure:${sure};visibility:${r > step ? "hidden" : "visible"}`;
        cell.setAttribute("aria-label", `${word}, ${percent(sure)}: ${MEANING[kind]}`);
        cell.setAttribute("aria-selected", chosen);
        cell.tabIndex = chosen ? 0 : -1;
      }));
      steps.value = step;
      steps.setAttribute("aria-valuetext", labels[step].join(", "));
      toggle.setAttribute("aria-pressed", run !== runs[0]);
      which.textContent = `The place of ${quoted(next[place])}, which reads ${quoted(places[place])}: ${labels[row].join(", ")}`;
      likeliest();
      work();
    }
    function select(r, p) {
      [row, place, head, step] = [r, p, null, Math.max(step, r)];
      walkTo(r, p);
      show();
    }
    function go(to) {
      const count = (kind) => run.kinds[to].filter((each) => each === kind).length, [layer, name] = rows[to];
      step = to;
      select(to, place);
      said.textContent = `Step ${to + 1} of ${rows.length}${layer === null ? "" : `, in layer ${layer + 1}`}: ${STEPS[name][1]} `
        + `Now ${count("read")} of ${places.length} places would write the word they have read, ${count("next")} the word to be written.`;
    }
    const walkTo = walkCells(grid, rows.length, places.length, { move: (r, p) => { select(r, p); lines[r][p].focus(); } });
    toggle.addEventListener("click", () => {
      run = run === runs[0] ? runs[1] : runs[0];
      show();
      const changed = lines.flatMap((cells, r) => cells.filter((_, p) => differs(r, p))).length;
      said.textContent = run === runs[0] ? `Every edge is back: the model says ${quoted(run.said)}`
        : `The place that is to write ${quoted(next[cut[0]])} no longer attends to ${quoted(senders[cut[1]])}, in any layer or head: ${changed} cells change their word (dashed). `
        + `The columns still read the same words; on its own, the model now says ${quoted(run.said)}`;
    });
    said.textContent = `The model says ${quoted(run.said)} Choose a cell to see why it would write its word, go through it step by step, or cut an edge.`;
    select(row, place);
  });
})();
