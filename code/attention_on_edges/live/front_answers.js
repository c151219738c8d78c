// What a model answers: a translation as a graph of words, and what is left of it when edges are cut.
(() => {
  "use strict";

  const { END, START, greedy } = EdgewiseEngine;
  const { EdgeSet } = EdgewiseCuts;
  const { ANY, groupWords, toWord } = EdgewiseWords;
  const { breathe } = EdgewiseBase;
  const LIKELY = 6, MOST_PIECES = 60, MOST_REPEATS = 3;
  const IN_TIME = 12;  // milliseconds of work between two breaths

  class Answers {
    constructor({ model, tokenizer }) {
      Object.assign(this, { model, tokenizer, counts: [model.config.N, model.config.h] });  // of layers and heads
    }

    // What can be read of a text, as corpora/text.py says: {text}, the signs `left` out, and the `rest` that is too long.
    read(typed) {
      const isRead = (sign) => /[\p{Script=Latin}\p{M}\p{N}\p{P}\p{Sc}\p{White_Space}\p{C}+=<>~^|`¨©¬®¯°±´¸×÷™]/u.test(sign), signs = Array.from(typed);
      const left = [...new Set(signs.filter((sign) => !isRead(sign)))].join(" ");
      const words = signs.map((sign) => (isRead(sign) ? sign : " ")).join("").split(/\s+/).filter(Boolean);
      let count = words.length;
      while (this.tokenizer.encode(words.slice(0, count).join(" ")).length > MOST_PIECES) count--;
      const [text, rest] = [words.slice(0, count), words.slice(count)].map((part) => part.join(" "));
      return { text: /[\p{L}\p{N}]/u.test(text) ? text : "", left, rest };
    }

    // A run of the model; null if alive() is false in the meantime. watch(ids) is told of each piece.
    async run(ids, { alive, watch, ...options }) {
      const run = { ids: [], logProbs: [], weights: new Map(), finished: false };
      const attention = (kind, layer, receiver, weights) => run.weights.set(`${kind} ${layer} ${receiver}`, weights);
      let last = performance.now();
      for (const step of greedy(this.model, ids, { attention, repeats: MOST_REPEATS, ...options })) {
        run.ids = [...step.ids];
        run.logProbs.push(step.logProbs);
        run.finished = step.finished;
        watch?.(run.ids);
        if (performance.now() - last < IN_TIME) continue;
        await breathe();
        if (!alive()) return null;
        last = performance.now();
      }
      return alive() ? run : null;
    }

    // The words of ids, and the numbers of the pieces of each.
    words(ids) {
      const shown = ids.map((id) => this.tokenizer.show(id)), groups = groupWords(shown);
      return [groups.map((group) => toWord(shown, group)), groups];
    }

    // A sentence as words and lines between them, and the run that it comes from.
    async translate(text, options) {
      const ids = this.tokenizer.encode(text), run = await this.run(ids, options);
      if (!run) return null;
      const [source, columns] = this.words(ids), [target, rows] = this.words(run.ids);
      const chosen = run.logProbs.map((row, i) => row[run.ids[i] ?? END]), certainty = Math.exp(chosen.reduce((a, b) => a + b, 0) / chosen.length);
      const sentence = { text, ids, run, source, columns, target, rows, said: this.tokenizer.decode(run.ids).trim(), certainty: run.finished ? certainty : 0 };
      const edges = [...new EdgeSet(this.counts, ids.length, run.logProbs.length).edges()].length;
      return { ...sentence, edges, lines: this.lines(sentence) };
    }

    // All lines [kind, sender, receiver, weight] in a layer and head, or on average.
    lines(sentence, [layer, head] = [ANY, ANY]) {
      const { columns, rows, run: { weights } } = sentence, [layers, heads] = this.counts, lines = [];
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
        if (r !== s) lines.push(["e2e", s, r, weigh("e2e", row, senders)]);
      }));
      return lines;
    }

    // What is left of all edges. A translation with cuts may grow longer than the one without.
    edgeSet({ ids, run }, { cuts, reach, kept }) {
      const written = run.logProbs.length, most = Math.max(written, 2 * ids.length + 11) + 9;
      const set = new EdgeSet(this.counts, ids.length, most);
      if (kept) set.keep(kept, written);
      cuts.forEach((cut) => set.cut(cut));
      if (reach !== null) set.narrow(reach);
      return set;
    }

    // The translation with cuts: {text, at, bars, left, set}; null if alive() is false in the meantime. Bars are the next words where
    // the text changes; where only some edges are kept and it does not, `at` is null and they are the words that lose most.
    async outcome(sentence, state, { alive }) {
      const { run, ids, target, rows } = sentence, set = this.edgeSet(sentence, state), left = set.left(run.logProbs.length).length;
      const cut = await this.run(ids, { alive, edge: set.has });
      if (!cut) return null;
      const [after] = this.words(cut.ids), differs = [...target, ""].findIndex((word, i) => word !== (after[i] ?? ""));
      const found = { text: this.tokenizer.decode(cut.ids).trim(), left, set };
      if (state.kept && String(cut.ids) === String(run.ids)) return { ...found, at: null, bars: wordsThatLose(sentence, cut) };
      const at = differs < 0 ? receiverOf(state.cuts, rows) : differs, start = rows[at]?.[0] ?? run.ids.length;
      return { ...found, at, bars: this.nextWords(ids, run.ids.slice(0, start), set.has) };
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

  // The words of a translation whose probability falls most: [word, on the whole graph, with cuts].
  function wordsThatLose({ target, rows, run }, cut) {
    const chance = ({ logProbs }, pieces) => Math.exp(pieces.reduce((sum, i) => sum + logProbs[i][run.ids[i]], 0));
    return target.map((word, t) => [word, chance(run, rows[t]), chance(cut, rows[t])]).sort((a, b) => a[2] - a[1] - b[2] + b[1]).slice(0, 4);
  }

  // The word of the target that loses an edge, if it is one.
  function receiverOf([[kind, , , receiver] = []], rows) {
    return kind && kind !== "e2e" && receiver !== ANY ? Math.max(0, rows.findIndex((row) => row.includes(receiver))) : 0;
  }

  globalThis.EdgewiseAnswers = { Answers };
})();
