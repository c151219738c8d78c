// What all live figures share.
(() => {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg", CELL = 28;

  // Adds an element to a parent: of SVG inside SVG, else of HTML.
  function make(parent, tag, attributes = {}, text) {
    const drawn = tag === "svg" || parent.namespaceURI === SVG;
    const node = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  // Gives life to all figures of a name that lie still: draw(root, data) replaces the picture.
  function enhance(name, draw) {
    for (const root of document.querySelectorAll(`.edgewise-element.${name}:not([data-alive])`)) {
      root.dataset.alive = "";
      const data = JSON.parse(root.querySelector("script").textContent);
      root.setAttribute("role", "group");
      root.setAttribute("aria-label", data.title);
      draw(root, data);
    }
  }

  // Loads a script of the book; fetch would not work from the disk.
  function loadScript(address) {
    return new Promise((done, fail) => {
      const script = make(document.head, "script", { src: address });
      script.addEventListener("load", done);
      script.addEventListener("error", () => { script.remove(); fail(new Error(`${address} is missing`)); });
    });
  }

  const breathe = () => new Promise((done) => setTimeout(done));  // lets the browser draw and react

  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

  // A labelled list of choices: [value, text]; act(value) is called when one is chosen.
  function choose(parent, label, choices, act) {
    const select = make(make(parent, "label", {}, `${label} `), "select");
    for (const [value, text] of choices) make(select, "option", { value }, text);
    select.addEventListener("change", () => act(select.value));
    return select;
  }

  // A labelled slider; act(number) is called while it moves.
  function slide(parent, label, { min, max, step = 1, value }, act) {
    const input = make(make(parent, "label", {}, `${label} `), "input", { type: "range", min, max, step, value });
    input.addEventListener("input", () => act(Number(input.value)));
    return input;
  }

  // A number as text: so many decimals, a minus as long as a plus, and none before a zero.
  const number = (value, decimals = 2) => value.toFixed(decimals).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");

  // Arrow keys move over the cells of a matrix, Enter and the space bar act on one. Returns a function that
  // puts them elsewhere, as when a cell was chosen by a click.
  function walkCells(svg, rows, columns, { move, act }) {
    let [row, column] = [0, 0];
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") act(row, column);
      else if (steps[event.key]) {
        row = Math.min(Math.max(row + steps[event.key][0], 0), rows - 1);
        column = Math.min(Math.max(column + steps[event.key][1], 0), columns - 1);
        move(row, column);
      } else return;
      event.preventDefault();
      event.stopPropagation();  // a notebook moves its own selection with the same keys
    });
    return (r, c) => { [row, column] = [r, c]; };
  }

  // A matrix: rows attend, columns are attended to. move(row, column) is called by arrow keys, act by Enter and clicks, hover by
  // the pointer. Returns the drawing, its `cells`, the `box` of a cell, and `point`, which puts the cursor on one.
  function matrix(parent, rows, columns, label, { move, act, hover }) {
    const room = (words) => 7 * Math.max(...words.map((word) => word.length)) + 8, upright = room(columns) > CELL + 8;
    const left = 22 + room(rows), top = 34 + (upright ? room(columns) - 14 : 0), across = columns.length * CELL, down = rows.length * CELL;
    const box = (r, c) => ({ x: left + c * CELL, y: top + r * CELL, width: CELL, height: CELL });
    const svg = make(parent, "svg", { class: "matrix", role: "application", tabindex: 0, viewBox: `0 0 ${left + across + 2} ${top + down + 2}`, "aria-label": label });
    Object.assign(svg.style, { minWidth: `${left + across}px`, maxWidth: `${1.2 * (left + across)}px` });
    make(svg, "text", { x: left + across / 2, y: 10 }, "attended to");
    make(svg, "text", { transform: `translate(10 ${top + down / 2}) rotate(-90)` }, "attends");
    columns.forEach((word, c) => make(svg, "text", { transform: `translate(${left + (c + 0.5) * CELL} ${top - (upright ? 6 : 10)})${upright ? " rotate(-90)" : ""}`, class: upright ? "start" : "" }, word));
    const cells = rows.map((word, r) => {
      make(svg, "text", { x: left - 6, y: top + (r + 0.5) * CELL, class: "end" }, word);
      return columns.map((_, c) => {
        const cell = make(svg, "rect", { class: "cell", ...box(r, c) });
        cell.addEventListener("click", () => act(r, c));
        cell.addEventListener("pointerenter", () => hover?.(r, c));
        return cell;
      });
    });
    const cursor = make(svg, "rect", { class: "cursor", ...box(0, 0), visibility: "hidden" }), walkTo = walkCells(svg, rows.length, columns.length, { move, act });
    const point = (r, c) => {
      for (const [name, value] of Object.entries({ ...box(r, c), visibility: "visible" })) cursor.setAttribute(name, value);
      walkTo(r, c);
    };
    return { svg, cells, box, point };
  }

  globalThis.EdgewiseBase = { breathe, choose, enhance, loadScript, make, matrix, number, plural, slide, walkCells };
})();
