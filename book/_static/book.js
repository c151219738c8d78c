// What scrolls sideways inside the page can be reached, and so scrolled, with the keyboard, and shows that there is more.
(() => {
  const kinds = ".bd-article :is(figure, table, pre, .output, .panels, mjx-container[display=true], .frame)";
  const mark = () => {
    for (const box of document.querySelectorAll(kinds)) {
      if (box.scrollWidth > box.clientWidth || (box.matches("pre, .output") && box.scrollHeight > box.clientHeight)) box.tabIndex = 0;
      else if (!box.matches("mjx-container")) box.removeAttribute("tabindex"); // MathJax has a menu there
      box.onscroll = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
      box.onscroll();
    }
  };
  window.addEventListener("load", () => {
    const article = document.querySelector(".bd-article");
    if (!article) return;
    const sizes = new ResizeObserver(mark); // pictures and formulas that come late change the article's height
    for (const box of [article, ...article.querySelectorAll(".frame svg, .edgewise-element")]) sizes.observe(box);
  });
})();

// Paper is white, whatever the screen's theme.
(() => {
  const root = document.documentElement.dataset;
  let theme;
  window.addEventListener("beforeprint", () => { theme ??= root.theme; root.theme = "light"; });
  window.addEventListener("afterprint", () => { root.theme = theme ?? root.theme; theme = undefined; });
})();

// A guess can be made: its answers are buttons, and the story's look back says which was chosen. Nothing is stored.
window.addEventListener("DOMContentLoaded", () => {
  const quotes = [...document.querySelectorAll(".bd-article blockquote")];
  const box = quotes.find((quote) => quote.querySelector("strong")?.textContent === "Guess.");
  const back = document.querySelector("#your-guess > h2"), items = [...(box?.querySelectorAll("li") ?? [])];
  if (!back || !items.length) return;
  const [said, where] = [document.createElement("p"), document.createElement("p")];
  said.className = where.className = "guessed";
  back.after(said);
  items[0].parentElement.after(where);
  const buttons = items.map((item) => {
    const button = document.createElement("button");
    button.append(...(item.querySelector("p") ?? item).childNodes);
    button.addEventListener("click", () => {
      for (const each of buttons) each.setAttribute("aria-pressed", each === button);
      said.textContent = `You guessed: ${button.textContent}.`;
      where.innerHTML = '<a href="#your-guess">Your guess</a> is looked at further down.';
    });
    item.replaceChildren(button);
    return button;
  });
});
