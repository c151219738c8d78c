// Chapter 11: how tokens halt. A bar per token fills with halting probabilities; what it lacks is its remainder.
// An example is there from the start; the model itself is loaded when a reader wants to type letters.
(() => {
  "use strict";

  const { breathe, enhance, loadScript, make, number, play, plural, walkCells } = EdgewiseBase;
  const ROW = 24, LEFT = 26, WIDE = 240, RIGHT = 56;

  enhance("halting", (root, { name, symbols, files, bytes, eps, most, start, example }) => {
    const ids = new Map(symbols.map((symbol, id) => [symbol, id]));
    const said = make(root, "p", { "aria-live": "polite" });
    const panels = make(root, "div", { class: "panels" });
    const sides = ["source", "target"].map((side) => {
      const part = make(panels, "div");
      make(part, "p", { class: "note" }, side === "source" ? "Source letters, in the encoder" : `Target tokens read by the decoder, from ${start}`);
      const svg = make(part, "svg", {
        role: "application", tabindex: 0, "aria-label": `Halting of the ${side} tokens. Arrow keys move from token to token.`,
      });
      walkCells(svg, 100, 1, { move: (row) => tell(side, row) });
      return { side, svg };
    });
    const hatch = make(make(sides[0].svg, "defs"), "pattern", {
      id: "edgewise-hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    });
    make(hatch, "path", { class: "hatch", d: "M0 0V7" });
    const counts = make(make(root, "div", { class: "frame" }), "table");
    let shown = null, run = null, turn = 0;  // {source: {tokens, weights}, target: ...}

    const steps = (weights) => weights.length;
    const active = (side, step) => shown[side].weights.map((row, i) => [i, row]).filter(([, row]) => steps(row) >= step).map(([i]) => i);

    // Edges into active tokens: source letters attend to all, a target token to itself, those before, and the source.
    function countsAt(step) {
      const all = shown.source.tokens.length, [senders, readers] = [active("source", step), active("target", step)];
      return {
        senders: senders.length, within: senders.length * all, readers: readers.length,
        before: readers.reduce((sum, i) => sum + i + 1, 0), across: readers.length * all,
      };
    }

    function draw(data) {
      shown = data;
      for (const { side, svg } of sides) {
        const { tokens, weights } = shown[side], high = tokens.length * ROW + 22, wide = LEFT + WIDE + RIGHT;
        svg.querySelectorAll(":scope > :not(defs)").forEach((old) => old.remove());
        svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
        weights.forEach((row, i) => drawRow(svg, side, i, tokens[i], row));
        const limit = LEFT + (1 - eps) * WIDE;
        make(svg, "path", { class: "limit", d: `M${limit} 0V${high - 18}` });
        make(svg, "text", { x: limit, y: high - 8 }, `1 − ε = ${1 - eps}`);
      }
      const count = Math.max(...[...shown.source.weights, ...shown.target.weights].map(steps));
      counts.replaceChildren();
      const head = make(counts, "tr");
      for (const text of ["step", "active source letters", "edges", "active target tokens", "edges"]) make(head, "th", { scope: "col" }, text);
      for (let step = 1; step <= count; step++) {
        const { senders, within, readers, before, across } = countsAt(step), line = make(counts, "tr");
        make(line, "th", { scope: "row" }, step);
        for (const text of [senders, within, readers, `${before} + ${across}`]) make(line, "td", {}, text);
      }
      return count;
    }

    function drawRow(svg, side, i, token, weights) {
      const row = make(svg, "g", { class: "token" }), y = i * ROW + 2, high = ROW - 5;
      make(row, "text", { x: LEFT - 8, y: y + high / 2, class: "end" }, token);
      make(row, "rect", { class: "track", x: LEFT, y, width: WIDE, height: high });
      let x = LEFT;
      weights.forEach((weight, step) => {
        const part = make(row, "g", { "data-step": step + 1 }), width = Math.max(weight * WIDE, 0), rest = step === weights.length - 1;
        make(part, "rect", { class: rest ? "part rest" : "part", x, y, width, height: high, "data-weight": weight });
        if (width > 16 && !rest) make(part, "text", { class: "count", x: x + width / 2, y: y + high / 2 + 1 }, step + 1);
        x += width;
      });
      make(row, "text", { class: "state start small", x: LEFT + WIDE + 6, y: y + high / 2 });
      row.addEventListener("pointerenter", () => tell(side, i));
    }

    function show(moment) {
      const now = moment + 1, { senders, within, readers, before, across } = countsAt(now);
      for (const { side, svg } of sides) {
        svg.querySelectorAll(".token").forEach((row, i) => {
          const needed = steps(shown[side].weights[i]), state = row.querySelector(".state");
          row.classList.remove("chosen");
          row.querySelectorAll("[data-step]").forEach((part) =>
            part.setAttribute("visibility", Number(part.dataset.step) <= now ? "visible" : "hidden"));
          state.textContent = needed > now ? "active" : `halted at ${needed}`;
        });
      }
      counts.querySelectorAll("tr").forEach((line, step) => {
        line.classList.toggle("now", step === now);
        line.classList.toggle("later", step > now);
      });
      said.textContent = `Step ${now}: ${senders} of ${plural(shown.source.tokens.length, "source letter")} active, with ${plural(within, "edge")}; `
        + `${readers} of ${plural(shown.target.tokens.length, "target token")} active, with ${before} edges among them and ${across} from the source.`;
    }

    function tell(side, row) {
      if (said.getAttribute("aria-live") === "off") return;  // it plays
      const { tokens, weights } = shown[side], i = Math.min(row, weights.length - 1), all = weights[i].map((weight) => number(weight));
      const { svg } = sides.find((one) => one.side === side);
      root.querySelector(".token.chosen")?.classList.remove("chosen");
      svg.querySelectorAll(".token")[i].classList.add("chosen");
      const earlier = all.slice(0, -1).join(", ");
      said.textContent = `“${tokens[i]}” (${i + 1}) halts at step ${steps(weights[i])}: `
        + `${earlier ? `halting probabilities ${earlier}, ` : ""}remainder ${all.at(-1)}.`;
    }

    let count = draw(example);
    run = play(root, said, "Step", { last: count - 1, name: (moment) => `${moment + 1} of ${count}` }, show);
    said.before(run.bar);
    make(root, "p", { class: "note" }, "Plain: halting probabilities, numbered by step. Hatched: the remainder, the weight of the last state. "
      + "Edges lead into active tokens only; those of the target are counted as edges from itself and the tokens before + edges from the source.");

    // The model, on demand.

    const bar = make(root, "div", { class: "bar" });
    const button = make(bar, "button", { type: "button", class: "load" }, `Load the model and type letters (${(bytes / 1e6).toFixed(1)} MB)`);
    run.bar.before(bar);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        if (!globalThis.EdgewiseEngine) await loadScript(files[0]);
        if (!globalThis.EdgewiseModels?.[name]) await loadScript(files[1]);
        offer(globalThis.EdgewiseEngine.load(globalThis.EdgewiseModels[name]).model);
      } catch (error) {
        run.stop();
        said.textContent = `The model cannot be loaded here (${error.message}): its file lies beside the page of the built book, `
          + "which a notebook does not have. The example stays.";
        button.disabled = false;
      }
    });

    function offer(model) {
      const form = make(bar, "form", { class: "bar" });
      const input = make(make(form, "label", {}, "Letters "), "input", {
        name: "letters", value: example.source.tokens.join(""), autocomplete: "off", autocapitalize: "none", spellcheck: "false",
      });
      make(form, "button", {}, "Sort");
      button.remove();
      input.focus();
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        sort(model, [...input.value.toLowerCase().replace(/\s/g, "")]);
      });
    }

    // A sentence about letters that the model cannot sort; empty if it can.
    function refusal(letters) {
      const odd = letters.find((letter) => letter.length !== 1 || letter < "a" || letter > "z" || !ids.has(letter));
      if (odd !== undefined) return `The model knows the letters a to z; “${odd}” is not one of them.`;
      if (!letters.length) return "There are no letters to sort.";
      return letters.length > most ? `That is ${letters.length} letters; ${most} are the most that can be sorted here.` : "";
    }

    async function sort(model, letters) {
      const mine = ++turn, refused = refusal(letters);
      run.stop();
      if (refused) {
        said.textContent = refused;
        return;
      }
      const found = { source: { tokens: letters, weights: [] }, target: { tokens: [], weights: [] } }, { target } = found;
      const pondered = (side, position, tokens) => {
        found[side === "enc" ? "source" : "target"].weights.push(...tokens.map(({ weights }) => weights));
      };
      let sorted = "";
      said.setAttribute("aria-live", "off");  // until all is decoded
      for (const { ids: now } of EdgewiseEngine.greedy(model, letters.map((letter) => ids.get(letter)), { pondered })) {
        const read = now.map((id) => symbols[id]);
        sorted = read.join("");
        target.tokens = [start, ...read];
        count = draw(found);
        show(count - 1);
        await breathe();
        if (mine !== turn) return;  // other letters were typed meanwhile
      }
      count = draw(found);  // where decoding ends at its limit, one token more has been read
      run.restart(count - 1);
      const right = sorted === [...letters].sort().join("");
      said.textContent = `“${letters.join("")}” became “${sorted}”, which is ${right ? "right" : "wrong"}. ${said.textContent}`;
    }
  });
})();
