// What Sphinx's search asks of each result, [page, title, anchor, description, score, file]: here sections are
// indexed as pages, PAGE#PLACE. The library's objects come last. Before them, chapters count more than other
// pages; words in a title more than in a term that is introduced, these more than in the text; imports and
// works cited count less; among equals the book's order holds.
Object.assign(Scorer, {
  score(result) {
    const [place, found, , object, score] = result, { docnames, titles } = Search._index;
    const number = docnames.indexOf(place), [page, section] = place.split("#");
    result[0] = page;
    if (object) return score - 100;
    result[1] = titles[number];
    if (section) result[2] = `#${section}`;
    const query = new URLSearchParams(location.search).get("q").trim().toLowerCase();
    const says = (title) => (title.toLowerCase().includes(query) ? 5 : 0);
    const apart = !section || section.startsWith("works-cited") ? 3 : 0;
    return score + says(titles[number]) + says(found) + (/\/\d/.test(page) ? 20 : 0) - apart - number / 1000;
  },
});
// Excerpts are of sentences: formulas and code are left out.
const plain = Search.htmlToText;
Search.htmlToText = (html, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  page.querySelectorAll(".math, .cell").forEach((part) => part.replaceWith(" … "));
  return plain(page.documentElement.outerHTML, anchor);
};
DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY &&= location.protocol !== "file:"; // there no page reads another
