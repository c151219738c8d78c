// What scrolls sideways inside the page can be reached, and so scrolled, with the keyboard.
(() => {
  const kinds = ".bd-article figure, .bd-article table, .bd-article .output, .bd-article div.math";
  const mark = () => {
    for (const box of document.querySelectorAll(kinds)) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  const begin = () => {
    mark();
    window.MathJax?.startup?.promise?.then(mark);
  };
  window.addEventListener("load", begin);
  window.addEventListener("resize", mark);
})();
