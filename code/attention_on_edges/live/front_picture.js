// Draws a sentence and its translation as a graph of words: a line as strong as its weight, words as handles.
(() => {
  "use strict";

  const { make } = EdgewiseBase;
  const LETTER = 0.54, GAP = 11, DOT = 22;  // widths: of a letter in ems, between words, of the start

  // The middles of words in a row; wider than the room if they need it.
  function spread(words, size, left, room) {
    const widths = words.map((word) => Math.max(1.6, word.length) * LETTER * size), all = widths.reduce((a, b) => a + b, 0);
    const gap = Math.max(GAP, Math.min(70, (room - left - all) / Math.max(1, words.length - 1)));
    const start = left + Math.max(0, (room - left - all - gap * (words.length - 1)) / 2);
    let x = start;
    const middles = widths.map((width) => (x += width + gap) - gap - width / 2);
    return { middles, widths, end: x - gap };
  }

  // handlers: line(line) cuts, word(side, number) silences, name(text | "") says what is pointed at.
  class Picture {
    constructor(svg, handlers) {
      Object.assign(this, { svg, handlers, lines: [], chosen: -1 });
      const lineAt = (event) => Number(event.target.dataset?.line ?? -1);
      const wordAt = (event) => event.target.closest?.("[data-word]")?.dataset;
      let touched = false, named = null;  // a finger names a line first; its second tap cuts
      svg.addEventListener("pointerdown", (event) => {
        touched = event.pointerType === "touch";
        named = touched ? this.chosen : null;
      });
      svg.addEventListener("pointerover", (event) => {
        if (event.pointerType === "touch") return;
        const word = wordAt(event);
        this.only(word ? word.side : null, word && Number(word.word));
        this.choose(lineAt(event));
      });
      svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") { this.only(null); this.choose(-1); } });
      svg.addEventListener("click", (event) => {
        const at = lineAt(event), word = wordAt(event);
        if (word) { this.choose(-1); return handlers.word(word.side, Number(word.word)); }
        if (at < 0) return;
        if (touched && named !== at) this.choose(at, "Tap again to cut it.");
        else {
          if (touched) this.choose(-1);
          handlers.line(this.lines[at].line);
        }
      });
      svg.addEventListener("keydown", (event) => this.walk(event));
      svg.addEventListener("blur", () => this.choose(-1));
    }

    // sentence: source and target words, lines [kind, sender, receiver, weight], of which those show that `shows`.
    show(sentence, shows) {
      const { svg } = this, room = svg.parentNode.clientWidth || 700, narrow = room < 500;
      const [largest, smallest, arch, between] = narrow ? [16, 14, 56, 122] : [20, 15, 84, 170];
      let size = largest + 1, xs, xt;
      do {
        size--;
        xs = spread(sentence.source, size, 4, room - 4);
        xt = spread(sentence.target, size, DOT + 14, room - 4);
      } while (size > smallest && Math.max(xs.end, xt.end) > room - 4);
      const width = Math.max(room, xs.end + 4, xt.end + 4), top = arch + size + 4, bottom = top + between;
      Object.assign(this, { sentence, room, chosen: -1 });
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${Math.round(width)} ${bottom + arch + 18}`);
      svg.style.width = width > room ? `${width}px` : "";
      svg.style.fontSize = `${size}px`;
      const place = ([kind, sender, receiver]) => {
        if (kind === "e2d") return `M${xs.middles[sender]} ${top + 10}L${xt.middles[receiver]} ${bottom - size - 2}`;
        const up = kind === "e2e", x = up ? xs.middles : xt.middles, y = up ? top - size - 3 : bottom + 10;
        const a = sender < 0 ? DOT / 2 + 4 : x[sender], b = x[receiver], high = (1.33 * arch * (1 - Math.exp(-(Math.abs(a - b) + 0.1 * room) / (0.45 * room)))) * (up ? -1 : 1);
        return `M${a} ${y}C${a} ${y + high} ${b} ${y + high} ${b} ${y}`;
      };
      const shown = sentence.lines.filter(shows).sort((a, b) => a[3] - b[3]);
      this.lines = shown.map((line) => {
        const [kind, , , weight] = line, d = place(line);
        const drawn = make(svg, "path", { class: `line ${kind}`, d, "stroke-width": (1 + 8 * weight).toFixed(1), "stroke-opacity": (0.25 + 0.75 * weight).toFixed(2) });
        return { line, drawn, d };
      });
      this.lines.forEach(({ d }, i) => make(svg, "path", { class: "hit", d, "data-line": i }));
      make(svg, "circle", { class: "start", cx: DOT / 2 + 4, cy: bottom - 5, r: 4 });
      const rows = [["source", sentence.source, xs, top], ["target", sentence.target, xt, bottom]];
      this.words = rows.flatMap(([side, words, { middles, widths }, y]) => words.map((text, word) => {
        const group = make(svg, "g", { class: "word", "data-side": side, "data-word": word }), wide = Math.max(24, widths[word] + GAP - 2);
        make(group, "rect", { x: middles[word] - wide / 2, y: y - size - 1, width: wide, height: size + 11 });
        make(group, "text", { x: middles[word], y }, text);
        return group;
      }));
    }

    // What is cut, silent, lost, or to be cut first: gone(line), silent(side, word), lost(word of the target), hinted(line).
    mark({ gone, silent, lost, hinted }) {
      this.lines.forEach(({ line, drawn }) => {
        drawn.classList.toggle("gone", gone(line));
        drawn.classList.toggle("hint", hinted(line));
      });
      this.words.forEach(({ classList, dataset: { side, word } }) => {
        classList.toggle("silent", silent(side, Number(word)));
        classList.toggle("lost", side === "target" && lost(Number(word)));
      });
    }

    only(side, word) {
      const own = ([kind, sender, receiver]) => side === "source" ? (kind !== "d2d" && sender === word) || (kind === "e2e" && receiver === word)
        : (kind !== "e2e" && receiver === word) || (kind === "d2d" && sender === word);
      this.lines.forEach(({ line, drawn }) => drawn.classList.toggle("dim", side !== null && !own(line)));
    }

    // Names a line: "chat" attends to "cat".
    choose(at, then = "") {
      this.lines[this.chosen]?.drawn.classList.remove("chosen");
      this.chosen = at;
      if (at < 0) return this.handlers.name("");
      const { line: [kind, sender, receiver, weight], drawn } = this.lines[at], { source, target } = this.sentence;
      drawn.classList.add("chosen");
      const from = kind !== "d2d" ? source[sender] : sender < 0 ? "the start" : target[sender];
      const told = kind === "e2e" ? `“${source[receiver]}”` : `To write “${target[receiver]}”, the model`;
      this.handlers.name(`${told} gives “${from}” ${Math.round(100 * weight)}\u00a0% of its attention. ${then}`);
    }

    // Left and right: the receiver's other lines. Up and down: other receivers. Enter: cut or mend. S: silence the sender.
    walk(event) {
      const turns = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }, turn = turns[event.key], { chosen } = this;
      const act = { enter: "cut", " ": "cut", s: "silence" }[event.key.toLowerCase()], say = "Enter cuts it, S silences its sender.";
      if (!this.lines.length || event.ctrlKey || event.metaKey || !(turn || act)) return;
      event.preventDefault();
      const order = this.lines.map((_, i) => i).sort((a, b) => rank(this.lines[a].line) - rank(this.lines[b].line)), at = order.indexOf(chosen);
      if (at < 0) return this.choose(order[0], say);
      const { line } = this.lines[chosen];
      if (act === "cut") return this.handlers.line(line);
      if (act) return line[1] < 0 || this.handlers.word(line[0] === "d2d" ? "target" : "source", line[1]);
      const same = (i) => receiverOf(this.lines[i].line) === receiverOf(this.lines[chosen].line);
      const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
      const rest = turn > 0 ? order.slice(at + 1) : order.slice(0, at).reverse(), next = rest.find((i) => same(i) === sideways);
      if (next !== undefined) this.choose(next, say);
    }
  }

  const KIND_ORDER = ["e2d", "d2d", "e2e"];
  const receiverOf = ([kind, , receiver]) => KIND_ORDER.indexOf(kind) * 1e3 + receiver;
  const rank = (line) => receiverOf(line) * 1e3 + line[1];

  globalThis.EdgewisePicture = { Picture };
})();
