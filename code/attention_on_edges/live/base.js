// What all live figures share.
(() => {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";

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

  // A run through moments 0 to last: a button plays it, or goes one on for those who want no motion, and a slider
  // chooses. show(moment) draws it and writes the line `said`, which is not read out while it plays.
  function play(parent, said, label, { last, name, wait = 900 }, show) {
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const bar = make(parent, "div", { class: "bar" }), button = make(bar, "button", { type: "button" });
    const slider = slide(bar, label, { min: 0, max: last, value: last }, (moment) => { stop(); go(moment); });
    const output = make(slider.parentNode, "output");
    let timer = null, at = last;

    function go(moment) {
      at = moment;
      slider.max = last;
      slider.value = at;
      output.textContent = name(at);
      slider.setAttribute("aria-valuetext", name(at));
      show(at);
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      button.textContent = still.matches ? "Next" : "Play";
      said.setAttribute("aria-live", "polite");
    }
    const next = () => {
      if (at === last - 1) stop();  // before the last is drawn, so that it is read out
      go(at === last ? 0 : at + 1);
    };
    button.addEventListener("click", () => {
      if (timer !== null) { stop(); return go(at); }
      if (still.matches) return next();
      button.textContent = "Pause";
      said.setAttribute("aria-live", "off");
      timer = setInterval(next, wait);
      next();
    });
    still.addEventListener("change", stop);
    stop();
    go(last);
    // Other data may have another number of moments; the run then begins anew at its end.
    return { bar, go, stop, restart(count) { stop(); last = count; go(last); }, get at() { return at; } };
  }

  // A number as text: so many decimals, and a minus as long as a plus.
  const number = (value, decimals = 2) => value.toFixed(decimals).replace("-", "−");

  // Arrow keys move over the cells of a matrix, Enter and the space bar act on one. Returns a function that
  // puts them elsewhere, as when a cell was chosen by a click.
  function walkCells(svg, rows, columns, { move, act }) {
    let [row, column] = [0, 0];
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") act?.(row, column);
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

  globalThis.EdgewiseBase = {
    SVG, breathe, choose, enhance, loadScript, make, number, play, plural, slide, walkCells,
  };
})();
