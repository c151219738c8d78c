// A language model's text: a click silences a word or cuts a line, and the next word changes. All computed beforehand.
(() => {
  "use strict";

  const { enhance, make } = EdgewiseBase;
  const percent = (p) => (p < 0.005 ? "< 1 %" : `${Math.round(100 * p)} %`);
  const shown = (word) => word.trim() || "(space)";

  enhance("lines", (root, { texts }) => {
    let number = 0, cut = null;  // what is cut: a row of `lines` or of `silenced`

    const bar = make(root, "div", { class: "bar", role: "group", "aria-label": "Texts" });
    const chips = texts.map(({ pieces }, i) => {
      const chip = make(bar, "button", { type: "button" }, `${pieces.join("")} …`);
      chip.addEventListener("click", () => choose(i));
      return chip;
    });
    const stage = make(root, "div", { class: "panels" }), picture = make(stage, "div", { class: "picture" });
    const panel = make(stage, "div", { class: "next" }), status = make(panel, "div", { "aria-live": "polite" });
    const next = make(status, "div"), said = make(status, "p", { class: "note" });
    const bars = make(panel, "div", { class: "chances" }), undo = make(panel, "button", { type: "button" }, "Undo");
    undo.addEventListener("click", () => {
      act(null);
      picture.querySelector("[role=button]").focus({ preventScroll: true });
    });

    const pieceOf = (place) => shown(texts[number].pieces[place - 1]);

    // How much a cut changes the likeliest word: 0 for nothing, above 1 for a word that falls to a third.
    function effect(left) {
      return Math.abs(Math.log((left + 1e-3) / (texts[number].likeliest[0][1] + 1e-3)));
    }

    function act(what) {
      cut = cut === what ? null : what;
      draw();
    }

    function button(node, label, what) {
      const set = { tabindex: 0, role: "button", "aria-pressed": cut === what, "aria-label": label };
      for (const [name, value] of Object.entries(set)) node.setAttribute(name, value);
      node.addEventListener("click", () => act(what));
      node.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        act(what);
        [...picture.querySelectorAll("[role=button]")].find((each) => each.getAttribute("aria-label") === label).focus();
      });
    }

    // Words in a row with their lines below; on a narrow screen in a column, with the lines to the right.
    function draw() {
      const { pieces, lines, silenced } = texts[number], column = root.clientWidth < 560, n = pieces.length;
      const size = (piece) => (column ? 30 : 9 + 9.2 * Math.max(2, shown(piece).length));
      const most = Math.max(...texts.map((text) => text.pieces.reduce((sum, piece) => sum + size(piece), 116)));
      let end = column ? 20 : 26;
      const at = pieces.map((piece) => { end += size(piece); return end - size(piece) / 2; });
      const far = (at[n - 1] - at[0]) * (column ? 0.3 : 0.26) + 34, side = column ? 118 : 30;
      picture.replaceChildren();
      picture.style.flexBasis = most > 1.1 * (root.clientWidth - 256) ? "100%" : "";  // one of them would be small beside the panel
      const box = column ? `0 0 ${side + far} ${end + 30}` : `0 0 ${end + 90} ${side + far}`;
      const limit = `max-width:${1.3 * box.split(" ")[2]}px`;  // or the words of a short text would be huge
      const svg = make(picture, "svg", { viewBox: box, role: "group", "aria-label": pieces.join(""), style: limit });
      make(svg, "circle", column ? { cx: side - 12, cy: 9, r: 4 } : { cx: 10, cy: 16, r: 4 });
      pieces.forEach((piece, i) => {
        const spot = column ? { x: side - 8, y: at[i], class: "end word" } : { x: at[i], y: 16, class: "word" };
        const word = make(svg, "text", spot, shown(piece)), what = silenced[i];
        if (what) button(word, `silence ${shown(piece)}`, what);
        if (what && what === cut) word.classList.add("gone");
      });
      const place = (along, across) => (column ? [across, along] : [along, across]).join(" ");
      for (const line of [...lines].sort((one, other) => effect(one[2]) - effect(other[2]))) {  // the strongest on top
        const [a, b] = [at[line[0] - 1], at[line[1] - 1]], deep = side + 12 + (b - a) * (column ? 0.4 : 0.35), wide = effect(line[2]);
        const d = `M${place(a, side)}C${place(a, deep)} ${place(b, deep)} ${place(b, side)}`;
        const gone = line === cut || (cut?.length === 3 && line[0] === cut[0]);
        make(svg, "path", { d, class: gone ? "edge gone" : "edge", style: `stroke-width:${Math.min(7, 0.7 + 1.5 * wide)};opacity:${Math.min(1, 0.3 + wide / 3)}` });
        button(make(svg, "path", { d, class: "hit" }), `line from ${pieceOf(line[0])} to ${pieceOf(line[1])}`, line);
      }
      const best = now()[0], last = column ? { x: side - 8, y: end + 12, class: "end word said" } : { x: end + 6, y: 16, class: "start word said" };
      make(svg, "text", last, shown(best[0]));
      tell();
    }

    const now = () => (cut ? cut[cut.length - 1] : texts[number].likeliest);

    function tell() {
      const { likeliest, note = "" } = texts[number], before = new Map(likeliest), after = new Map(now()), [answer] = likeliest[0], least = likeliest[likeliest.length - 1][1];
      if (cut) after.set(answer, cut[cut.length - 2]);
      const best = shown(now()[0][0]), was = shown(answer);
      next.replaceChildren("Next word: ");
      make(next, "strong", {}, best);
      if (best !== was) next.append(` (was ${was})`);
      undo.disabled = !cut;
      const done = cut?.length === 3 ? `“${pieceOf(cut[0])}” is silenced: no later word attends to it.` : cut && `The line from “${pieceOf(cut[0])}” to “${pieceOf(cut[1])}” is cut.`;
      said.textContent = done ? `${done} Outlined bars: before.` : `${note} Choose a word or a line; the next choice replaces it. The dot is a start token and stays.`;
      bars.replaceChildren();
      const rows = [...after].sort((a, b) => b[1] - a[1]).slice(0, 5);
      if (!rows.some(([word]) => word === answer)) rows.push([answer, after.get(answer)]);
      for (const [word, chance] of rows) {
        const row = make(bars, "div", { class: "chance" }), was = before.get(word);
        make(row, "span", {}, shown(word));
        const both = make(row, "span", { class: "both", "aria-hidden": true });
        make(both, "i", { style: `width:${100 * chance}%` });
        if (cut && was > 0.05) make(both, "i", { class: "was", style: `width:${100 * was}%` });
        make(row, "span", {}, cut ? `${was === undefined ? `< ${percent(Math.max(0.01, least))}` : percent(was)} → ${percent(chance)}` : percent(chance));
      }
    }

    function choose(i) {
      [number, cut] = [i, null];
      chips.forEach((chip, j) => chip.setAttribute("aria-pressed", i === j));
      draw();
    }

    choose(0);
    let width = root.clientWidth;
    new ResizeObserver(() => {
      if (width !== root.clientWidth) draw();
      width = root.clientWidth;
    }).observe(root);
  });
})();
