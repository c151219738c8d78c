// What scrolls sideways inside the page can be reached, and so scrolled, with the keyboard.
(() => {
  const kinds = ".bd-article figure, .bd-article table, .bd-article .output, .bd-article div.math";
  const mark = () => {
    for (const box of document.querySelectorAll(kinds)) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  window.addEventListener("load", () => {
    const article = document.querySelector(".bd-article");
    if (!article) return;
    new ResizeObserver(mark).observe(article); // pictures and formulas that come late change its height
  });
})();

// Paper is white, whatever the screen's theme.
(() => {
  const root = document.documentElement.dataset;
  let theme;
  window.addEventListener("beforeprint", () => { theme ??= root.theme; root.theme = "light"; });
  window.addEventListener("afterprint", () => { root.theme = theme ?? root.theme; theme = undefined; });
})();
