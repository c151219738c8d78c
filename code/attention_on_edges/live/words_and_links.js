// Words, lines and links of the front page: what depends on no model and draws nothing.
//
// A sentence has source and target words; columns and rows are the numbers of their pieces. A line is
// [kind, sender, receiver], in words, sender -1 the start. A cut is [kind, layer, head, receiver, sender], in tokens of
// the graph: those of the target are what the decoder reads, the start first, and token n predicts piece n.
(() => {
  "use strict";

  const ANY = -1;
  const KINDS = ["e2e", "e2d", "d2d"];
  const WHOLE = { cuts: [], reach: null, kept: null };  // nothing is cut
  const MOST_CUTS = 2000, MOST_TEXT = 5000;

  // Pieces by the word or mark that they belong to.
  function groupWords(shown) {
    const groups = [];
    shown.forEach((piece, i) => (groups.length && /^([\p{L}\p{N}]|['’-])/u.test(piece) ? groups.at(-1).push(i) : groups.push([i])));
    return groups;
  }

  const toWord = (shown, group) => group.map((i) => shown[i]).join("").replace(/^_/, "");

  function cutLine({ columns, rows }, [kind, sender, receiver], [layer, head] = [ANY, ANY]) {
    const senders = kind !== "d2d" ? columns[sender] : sender < 0 ? [0] : rows[sender].map((row) => row + 1);
    return (kind === "e2e" ? columns : rows)[receiver].flatMap((r) => senders.map((s) => [kind, layer, head, r, s]));
  }

  // Nobody attends to a word any more: of the source, or of what is written.
  function silence({ columns, rows }, side, word, [layer, head] = [ANY, ANY]) {
    return side === "source" ? columns[word].flatMap((s) => ["e2e", "e2d"].map((kind) => [kind, layer, head, ANY, s]))
      : rows[word].map((s) => ["d2d", layer, head, ANY, s + 1]);
  }

  const keyOf = (cuts) => cuts.map((cut) => cut.join(".")).sort().join("_");

  // Words that one text has and another lacks, by their longest common subsequence: [word, "both" | "old" | "new"].
  function compareWords(before, after) {
    const [a, b] = [before, after].map((text) => text.split(" ").filter(Boolean));
    const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
      }
    }
    const words = [];
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (a[i] === b[j]) {
        words.push([a[i], "both"]);
        [i, j] = [i + 1, j + 1];
      } else if (j === b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) words.push([a[i++], "old"]);
      else words.push([b[j++], "new"]);
    }
    return words;
  }

  // A state as the part of an address after #, and back; null if it is none. There, layers and heads count from 1.
  const toReader = (n) => (n === ANY ? n : n + 1), fromReader = (n) => (n > 0 ? n - 1 : n || NaN);

  function toLink({ text, cuts, reach, kept }) {
    const parts = new URLSearchParams({ text });
    if (cuts.length) parts.set("cut", cuts.map(([kind, layer, head, ...ends]) => [kind, toReader(layer), toReader(head), ...ends].join(".")).join("_"));
    if (reach !== null) parts.set("window", reach);
    if (kept) parts.set("keep", kept.join("."));
    return `#live?${parts}`;
  }

  function fromLink(link) {
    if (!link.startsWith("#live?")) return null;
    const parts = new URLSearchParams(link.slice(6)), reach = parts.get("window");
    const number = (text) => (/^-?\d{1,5}$/.test(text) ? Number(text) : NaN);
    const numbers = (name, by) => (parts.get(name) ?? "").split(by).slice(0, MOST_CUTS);
    const cuts = numbers("cut", "_").map((cut) => cut.split(".")).filter(([kind, ...rest]) => KINDS.includes(kind) && rest.length === 4)
      .map(([kind, ...rest]) => [kind, ...rest.map(number)]).map(([kind, layer, head, ...ends]) => [kind, fromReader(layer), fromReader(head), ...ends]).filter((cut) => !cut.some(Number.isNaN));
    return {
      text: (parts.get("text") ?? "").slice(0, MOST_TEXT), cuts, reach: /^\d$/.test(reach) ? Number(reach) : null,
      kept: parts.has("keep") ? numbers("keep", ".").map(number).filter((n) => n >= 0) : null,
    };
  }

  globalThis.EdgewiseWords = {
    ANY, KINDS, WHOLE, compareWords, cutLine, fromLink, groupWords, keyOf, silence, toLink, toWord,
  };
})();
