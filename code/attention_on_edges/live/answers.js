// What a model answers: a translation as a graph of words, and what is left of it when edges are cut.
(() => {
  "use strict";

  const { END, START, beamSearch, greedy } = EdgewiseEngine;
  const { EdgeSet } = EdgewiseCuts;
  const { ANY, compareWords, groupWords, toWord } = EdgewiseWords;
  const { breathe } = EdgewiseBase;
  const LIKELY = 6, MOST_PIECES = 60;
  const IN_TIME = 12;  // milliseconds of work between two breaths

  class Answers {
    constructor({ model, tokenizer }) {
      Object.assign(this, { model, tokenizer, shape: { layers: model.config.N, heads: model.config.h } });
    }

    // The longest beginning of a text that the page translates, by words, and what is left over.
    fit(text) {
      const words = text.split(" ");
      let count = words.length;
      while (count > 1 && this.tokenizer.encode(words.slice(0, count).join(" ")).length > MOST_PIECES) count--;
      const [head, rest] = [words.slice(0, count), words.slice(count)].map((part) => part.join(" "));
      return this.tokenizer.encode(head).length > MOST_PIECES ? ["", text] : [head, rest];
    }

    // A run of the model; null if alive() is false in the meantime. watch(ids) is told of each piece.
    async run(ids, { alive, watch, beam = 1, repeats, ...options }) {
      const record = { ids: [], logProbs: [], weights: new Map(), finished: false };
      const attention = (kind, layer, receiver, weights) => record.weights.set(`${kind} ${layer} ${receiver}`, weights);
      let forced = options.forced ?? null, last = performance.now();
      const pause = async () => {
        if (performance.now() - last < IN_TIME) return true;
        await breathe();
        last = performance.now();
        return alive();
      };
      if (beam > 1) {
        const search = beamSearch(this.model, ids, { beam, repeats, ...options });
        for (let step = search.next(); ; step = search.next()) {
          if (step.done) { forced = step.value[0].ids; break; }
          if (!(await pause())) return null;
        }
      }
      for (const step of greedy(this.model, ids, { attention, repeats, ...options, forced })) {
        record.ids = [...step.ids];
        record.logProbs.push(step.logProbs);
        record.finished = step.finished;
        watch?.(record.ids);
        if (!(await pause())) return null;
      }
      return alive() ? record : null;
    }

    // The words of ids of the target, and the pieces of each.
    words(ids) {
      const shown = ids.map((id) => this.tokenizer.show(id)), rows = groupWords(shown);
      return { rows, words: rows.map((group) => toWord(shown, group)) };
    }

    // A sentence as words and lines between them, and the run that it comes from.
    async translate(text, { alive, watch, beam }) {
      const ids = this.tokenizer.encode(text), whole = await this.run(ids, { alive, beam, repeats: 3, watch });
      if (!whole) return null;
      const shown = ids.map((id) => this.tokenizer.show(id)), columns = groupWords(shown), { rows, words } = this.words(whole.ids);
      const sentence = {
        text, ids, whole, columns, rows, source: columns.map((group) => toWord(shown, group)), target: words,
        said: this.tokenizer.decode(whole.ids).trim(),
      };
      sentence.edges = [...new EdgeSet(this.shape, ids.length, whole.logProbs.length).edges()].length;
      return { ...sentence, lines: this.lines(sentence) };
    }

    // The same in pieces instead of words, with the end as the last receiver.
    inPieces(sentence) {
      const { ids, whole } = sentence, each = (list) => list.map((_, i) => [i]);
      const show = (list) => list.map((id) => this.tokenizer.show(id).replace(/^_/, "\u00a0"));
      const target = [...whole.ids, END].slice(0, whole.logProbs.length);
      const pieces = { ...sentence, columns: each(ids), rows: each(target), source: show(ids), target: show(target.map((id) => id)) };
      return { ...pieces, target: pieces.target.map((text) => (text === "<eos>" ? "end" : text)) };
    }

    // All lines [kind, sender, receiver, weight] in a layer and head, or on average; `selves`: to the word itself too.
    lines(sentence, [layer, head] = [ANY, ANY], selves = false) {
      const { columns, rows, whole: { weights } } = sentence, { layers, heads } = this.shape, lines = [];
      const range = (chosen, count) => (chosen === ANY ? Array.from({ length: count }, (_, i) => i) : [chosen]);
      const [ls, hs] = [range(layer, layers), range(head, heads)];
      const weigh = (kind, receivers, senders) => {
        let sum = 0;
        for (const l of ls) for (const r of receivers) {
          const found = weights.get(`${kind} ${l} ${r}`);
          for (const h of hs) for (const s of senders) sum += found[h][s] ?? 0;
        }
        return sum / (ls.length * hs.length * receivers.length);
      };
      rows.forEach((row, t) => columns.forEach((senders, s) => lines.push(["e2d", s, t, weigh("e2d", row, senders)])));
      rows.forEach((row, t) => {
        for (let s = -1; s < t; s++) lines.push(["d2d", s, t, weigh("d2d", row, s < 0 ? [0] : rows[s].map((r) => r + 1))]);
      });
      columns.forEach((row, r) => columns.forEach((senders, s) => {
        if (r !== s || selves) lines.push(["e2e", s, r, weigh("e2e", row, senders)]);
      }));
      return lines;
    }

    // What is left of all edges. A translation with cuts may grow longer than the one without.
    edgeSet({ ids, whole }, { cuts, reach, lighter, kept }) {
      const written = whole.logProbs.length, most = Math.max(written, 2 * ids.length + 11) + 9;
      const set = new EdgeSet(this.shape, ids.length, most);
      if (kept) set.keep(kept, written);
      cuts.forEach((cut) => set.cut(cut));
      if (reach !== null) set.narrow(reach);
      if (lighter) {
        const weight = ([kind, layer, head, receiver, sender]) => whole.weights.get(`${kind} ${layer} ${receiver}`)[head][sender];
        for (const edge of set.edges(undefined, written)) if (weight(edge) < lighter) set.set(edge, 1);
      }
      return set;
    }

    // The translation with cuts: {text, at, bars, left, set}; null if alive() is false in the meantime.
    async outcome(sentence, state, { alive, bars = true }) {
      const set = this.edgeSet(sentence, state), left = set.left(sentence.whole.logProbs.length).length;
      const { whole, ids } = sentence, cut = await this.run(ids, { alive, edge: set.has, beam: state.beam });
      if (!cut) return null;
      const before = this.words(whole.ids), after = this.words(cut.ids).words;
      const differs = [...before.words, ""].findIndex((word, i) => word !== (after[i] ?? "")), at = differs < 0 ? receiverOf(state.cuts, before.rows) : differs;
      const start = before.rows[at]?.[0] ?? whole.ids.length, found = { text: this.tokenizer.decode(cut.ids).trim(), at, left, set };
      return { ...found, bars: bars ? this.nextWords(ids, whole.ids.slice(0, start), set.has) : [] };
    }

    // The likeliest next words after ids of the target: [word, probability on the whole graph, with cuts].
    nextWords(ids, prefix, edge) {
      const ways = [{}, { edge }].map((options) => {
        const source = this.model.encode(ids, options);
        let cache = this.model.begin(), step;
        for (const id of [START, ...prefix]) { step = this.model.step(source, cache, id, options); cache = step.cache; }
        return { options, source, ...step };
      });
      const first = [...new Set(ways.flatMap(({ logProbs }) => mostLikely(logProbs, LIKELY)))], words = new Map();
      ways.forEach((way, number) => first.forEach((id) => {
        const word = this.tokenizer.decode(this.finish(way, id)).trim() || "(the end)", both = words.get(word) ?? [0, 0];
        both[number] += Math.exp(way.logProbs[id]);
        words.set(word, both);
      }));
      return [...words].map(([word, [p, q]]) => [word, p, q]).sort((a, b) => b[1] + b[2] - a[1] - a[2]).slice(0, 4);
    }

    // The rest of a word that begins with a piece, greedily.
    finish({ options, source, cache }, id) {
      const found = [id];
      for (let n = 0; n < 8 && id !== END; n++) {
        const step = this.model.step(source, cache, found.at(-1), options), [best] = mostLikely(step.logProbs, 1);
        if (best <= END || !/^([\p{L}\p{N}]|['’-])/u.test(this.tokenizer.show(best))) break;
        found.push(best);
        cache = step.cache;
      }
      return found;
    }

    // Mean probability of a piece of a translation.
    certainty({ whole }) {
      const chosen = whole.logProbs.map((row, i) => row[whole.ids[i] ?? END]);
      return Math.exp(chosen.reduce((sum, value) => sum + value, 0) / chosen.length);
    }
  }

  function mostLikely(logProbs, count) {
    const best = [];
    logProbs.forEach((value, id) => {
      if (best.length === count && value <= logProbs[best.at(-1)]) return;
      const place = best.findIndex((other) => logProbs[other] < value);
      best.splice(place < 0 ? best.length : place, 0, id);
      best.length = Math.min(best.length, count);
    });
    return best;
  }

  // The word of the target that loses an edge, if it is one.
  function receiverOf([[kind, , , receiver] = []], rows) {
    return kind && kind !== "e2e" && receiver !== ANY ? Math.max(0, rows.findIndex((row) => row.includes(receiver))) : 0;
  }

  // Whether two texts have the same words.
  const sameWords = (a, b) => compareWords(a, b).every(([, where]) => where === "both");

  globalThis.EdgewiseAnswers = { Answers, sameWords };
})();
