// The book's translators in plain JavaScript: the same weights, tokenizer, graphs and search as in Python.
// It draws nothing, needs nothing, and runs from file://. What it computes is tested against Python.
//
// Attention runs on three graphs, named as in the DGL tutorial: "e2e" (source to source), "e2d" (source to
// target) and "d2d" (target to target). A caller may take edges away: options.edge(kind, layer, head, receiver,
// sender) says whether an edge exists. options.attention(kind, layer, receiver, weights) is told each
// receiver's weights, [head][sender], as they arise.
(() => {
  "use strict";

  const START = 0, END = 1;
  const SPECIAL = ["<sos>", "<eos>", "<pad>"];

  // Weights: a safetensors file holds the length of its header, the header as JSON, then the numbers.

  const HALF = new Float32Array(1 << 16);  // what the 65,536 numbers of half precision are
  for (let bits = 0; bits < HALF.length; bits++) {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    HALF[bits] = (bits >> 15 ? -1 : 1) * (exponent < 31 ? size : fraction ? NaN : Infinity);
  }

  function readTensors(bytes) {
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
    delete header.__metadata__;
    return Object.fromEntries(Object.entries(header).map(([name, { dtype, data_offsets: [start, stop] }]) => {
      if (dtype !== "F16") throw new Error(`${name} is of type ${dtype}; F16 can be read`);
      const halves = new Uint16Array(bytes.slice(8 + length + start, 8 + length + stop).buffer), tensor = new Float32Array(halves.length);
      for (let i = 0; i < halves.length; i++) tensor[i] = HALF[halves[i]];  // from() would take ten times as long
      return [name, tensor];
    }));
  }

  function fromBase64(text) {
    const binary = atob(text), bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  }

  // Text: byte-level byte-pair encoding. What counts as white space is what Rust and Python call so, which is
  // not what \s and trim() do.

  const WORDS = new RegExp(
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+" +
      "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");
  const SPACE = /[\p{White_Space}\x1c-\x1f]+/gu;

  // What somebody typed, written as training text is: as_trained in corpora/text.py.
  function asTrained(text) {
    return text.replace(SPACE, " ").replace(/[\p{Cc}\p{Cf}\p{DI}]/gu, "").normalize("NFC")
      .replace(/[`\u00b4\u02b9\u02bb\u02bc\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\uff07]/g, "'")
      .replace(/[\u00ab\u00bb\u201c\u201d\u201e\u201f\u2033\uff02]/g, '"')
      .replace(/[\u2010-\u2015\u2212]/g, "-").replaceAll("\u2026", "...")
      .replace(SPACE, " ").trim();
  }

  class Tokenizer {
    // merges: pairs of pieces, such as "Ġ t", a line each, the most important first.
    constructor(merges) {
      const isPrintable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
      let unprintable = 256;
      this.letters = Array.from({ length: 256 }, (_, byte) =>
        String.fromCodePoint(isPrintable(byte) ? byte : unprintable++));
      this.bytes = new Map(this.letters.map((letter, byte) => [letter, byte]));
      const pairs = merges.split("\n");
      this.ranks = new Map(pairs.map((pair, rank) => [pair, rank]));
      this.symbols = [...SPECIAL, ...[...this.letters].sort(), ...pairs.map((pair) => pair.replace(" ", ""))];
      this.ids = new Map(this.symbols.map((symbol, id) => [symbol, id]));
      this.known = new Map();  // words that were split before
    }

    encode(text) {
      const words = (" " + asTrained(text)).matchAll(WORDS);
      return Array.from(words, ([word]) => {
        if (!this.known.has(word)) this.known.set(word, this.merge(word));
        return this.known.get(word);
      }).flat();
    }

    merge(word) {
      const pieces = Array.from(new TextEncoder().encode(word), (byte) => this.letters[byte]);
      for (;;) {
        let best = Infinity, place = -1;
        for (let i = 0; i + 1 < pieces.length; i++) {
          const rank = this.ranks.get(`${pieces[i]} ${pieces[i + 1]}`);
          if (rank < best) [best, place] = [rank, i];
        }
        if (place < 0) return pieces.map((piece) => this.ids.get(piece));
        pieces.splice(place, 2, pieces[place] + pieces[place + 1]);
      }
    }

    decode(ids) {
      const letters = ids.filter((id) => id >= SPECIAL.length).map((id) => this.symbols[id]).join("");
      const bytes = Uint8Array.from(letters, (letter) => this.bytes.get(letter));
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes).replace(/^ /, "");
    }

    // A piece to be read, with "_" for the space before a word.
    show(id) {
      if (id < SPECIAL.length) return this.symbols[id];
      const bytes = Uint8Array.from(this.symbols[id], (letter) => this.bytes.get(letter));
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes).replaceAll(" ", "_");
    }
  }

  // Arithmetic on rows: a Float32Array x of shape [rows, width], row by row.

  // Some of the outputs of a linear layer, from number first on: [rows, count].
  function linear(x, { weight, bias }, first = 0, count = bias.length) {
    const width = weight.length / bias.length, rows = x.length / width, y = new Float32Array(rows * count);
    for (let o = 0; o < count; o++) {
      const at = (first + o) * width;
      for (let row = 0, from = 0; row < rows; row++, from += width) {
        let sum = bias[first + o];
        for (let j = 0; j < width; j++) sum += x[from + j] * weight[at + j];
        y[row * count + o] = sum;
      }
    }
    return y;
  }

  function layerNorm(x, { weight, bias }) {
    const width = bias.length, y = new Float32Array(x.length);
    for (let from = 0; from < x.length; from += width) {
      let mean = 0, variance = 0;
      for (let j = 0; j < width; j++) mean += x[from + j] / width;
      for (let j = 0; j < width; j++) variance += (x[from + j] - mean) ** 2 / width;
      const scale = 1 / Math.sqrt(variance + 1e-5);
      for (let j = 0; j < width; j++) y[from + j] = (x[from + j] - mean) * scale * weight[j] + bias[j];
    }
    return y;
  }

  const add = (x, y) => x.map((value, i) => value + y[i]);

  function logSoftmax(x) {
    const most = x.reduce((a, b) => Math.max(a, b), -Infinity);
    const rest = Math.log(x.reduce((sum, value) => sum + Math.exp(value - most), 0));
    return x.map((value) => value - most - rest);
  }

  // One receiver: the softmax-weighted sum of the values on its in-edges, head by head. A head without any
  // in-edge gives zeros. exists(head, sender) may be null: then all edges exist. Returns the sum and, if they
  // are wanted, the weights [head][sender].
  function receive(query, senders, heads, exists, wantsWeights) {
    const d = query.length / heads, sum = new Float32Array(query.length), all = [];
    for (let head = 0; head < heads; head++) {
      const from = head * d, weights = new Float64Array(senders.length).fill(-Infinity);
      let most = -Infinity, total = 0;
      for (let s = 0; s < senders.length; s++) {
        if (exists && !exists(head, s)) continue;
        const { key } = senders[s];
        let score = 0;
        for (let j = from; j < from + d; j++) score += query[j] * key[j];
        weights[s] = score / Math.sqrt(d);
        if (weights[s] > most) most = weights[s];
      }
      for (let s = 0; s < senders.length; s++) {
        weights[s] = weights[s] === -Infinity ? 0 : Math.exp(weights[s] - most);
        total += weights[s];
      }
      for (let s = 0; s < senders.length; s++) {
        if (weights[s] === 0) continue;
        weights[s] /= total;
        const { value } = senders[s];
        for (let j = from; j < from + d; j++) sum[j] += weights[s] * value[j];
      }
      if (wantsWeights) all.push(Float32Array.from(weights));
    }
    return { sum, weights: all };
  }

  // The model.

  class Transformer {
    // config: the model's settings, as in an artifact's config.json; tensors by name.
    constructor(config, tensors) {
      const part = (path) => ({ weight: tensors[`${path}.weight`], bias: tensors[`${path}.bias`] });
      const attention = (path) => ({ in: part(`${path}.in_proj`), out: part(`${path}.out_proj`) });
      const stack = (side, sublayers) => ({
        norm: part(`${side}.norm`),
        layers: Array.from({ length: config.N }, (_, i) => {
          const path = `${side}.layers.${i}`;
          return {
            self: attention(`${path}.self_attn`),
            cross: attention(`${path}.src_attn`),
            inner: part(`${path}.feed_forward.inner`),
            outer: part(`${path}.feed_forward.outer`),
            norms: Array.from({ length: sublayers }, (_, j) => part(`${path}.sublayer.${j}.norm`)),
          };
        }),
      });
      this.config = config;
      this.encoder = stack("encoder", 2);
      this.decoder = stack("decoder", 3);
      this.source = tensors["src_embed.lut.weight"];
      this.output = { weight: this.source, bias: tensors["generator.proj.bias"] };  // one matrix for all three
    }

    // Ids at consecutive positions: their rows of a table, scaled, and sines and cosines of the positions.
    embed(table, ids, position) {
      const width = this.config.dim_model, scale = Math.fround(Math.sqrt(width)), x = new Float32Array(ids.length * width);
      ids.forEach((id, row) => {
        for (let j = 0; j < width; j++) {
          const angle = (position + row) * 10000 ** (-(j - (j % 2)) / width), at = row * width + j;
          x[at] = table[id * width + j] * scale;
          x[at] += Math.fround(j % 2 ? Math.cos(angle) : Math.sin(angle));
        }
      });
      return x;
    }

    // x after a sublayer f, with its residual connection and its norm (pre-norm).
    sublayer(x, norm, f) {
      return add(x, f(layerNorm(x, norm)));
    }

    feedForward(x, layer) {
      return this.sublayer(x, layer.norms.at(-1), (y) =>
        linear(linear(y, layer.inner).map((value) => Math.max(value, 0)), layer.outer));
    }

    // Queries, keys and values of each row, or a run of them ("q", "kv").
    project(x, attention, fields = "qkv") {
      const names = { q: "query", k: "key", v: "value" }, width = this.config.dim_model;
      const count = fields.length * width, y = linear(x, attention.in, "qkv".indexOf(fields) * width, count);
      return Array.from({ length: x.length / width }, (_, row) => Object.fromEntries([...fields].map((field, i) =>
        [names[field], y.subarray(row * count + i * width, row * count + (i + 1) * width)])));
    }

    // Of one graph, the weighted sums of the receivers that `rows` names, [rows, width], after the output projection.
    attend(kind, layer, attention, queries, senders, rows, options) {
      const width = this.config.dim_model, y = new Float32Array(queries.length * width);
      queries.forEach(({ query }, i) => {
        const exists = options.edge && ((head, sender) => options.edge(kind, layer, head, rows[i], sender));
        const { sum, weights } = receive(query, senders, this.config.h, exists, options.attention);
        options.attention?.(kind, layer, rows[i], weights);
        y.set(sum, i * width);
      });
      return linear(y, attention.out);
    }

    // Keys and values of the encoded source for each layer of the decoder.
    encode(ids, options = {}) {
      let x = this.embed(this.source, ids, 0);
      const rows = ids.map((_, row) => row);
      this.encoder.layers.forEach((layer, l) => {
        x = this.sublayer(x, layer.norms[0], (y) => {
          const fields = this.project(y, layer.self);
          return this.attend("e2e", l, layer.self, fields, fields, rows, options);
        });
        x = this.feedForward(x, layer);
      });
      const states = layerNorm(x, this.encoder.norm);
      return this.decoder.layers.map((layer) => this.project(states, layer.cross, "kv"));
    }

    // The cache of an empty target: for each layer, keys and values of the tokens so far.
    begin() {
      return this.decoder.layers.map(() => []);
    }

    // Appends a token to a target. The cache that is given stays as it is, so that hypotheses can share it.
    step(source, cache, id, options = {}) {
      const position = cache[0].length, grown = [];
      let x = this.embed(this.source, [id], position);
      this.decoder.layers.forEach((layer, l) => {
        x = this.sublayer(x, layer.norms[0], (y) => {
          const fields = this.project(y, layer.self);
          grown[l] = [...cache[l], ...fields];
          return this.attend("d2d", l, layer.self, fields, grown[l], [position], options);
        });
        x = this.sublayer(x, layer.norms[1], (y) =>
          this.attend("e2d", l, layer.cross, this.project(y, layer.cross, "q"), source[l], [position], options));
        x = this.feedForward(x, layer);
      });
      return { cache: grown, logProbs: logSoftmax(linear(layerNorm(x, this.decoder.norm), this.output)) };
    }
  }

  // Decoding.

  const longest = (ids) => 2 * ids.length + 10;

  // The tokens that would make a token, or a run of several, stand more than `most` times in a row.
  function loops(ids, most) {
    const found = [];
    for (let length = 1; length * (most + 1) <= ids.length + 1; length++) {
      const tail = ids.slice(ids.length + 1 - (most + 1) * length);
      if (tail.slice(length).every((id, i) => id === tail[i])) found.push(ids[ids.length - length]);
    }
    return found;
  }

  function withoutLoops(logProbs, ids, most) {
    const allowed = logProbs.slice();
    loops(ids, most).forEach((id) => { allowed[id] = -Infinity; });
    return allowed;
  }

  // Yields after each token, so that a page can draw it or stop. `forced` are ids of a target to be kept to:
  // then it yields what the model predicts after each of them.
  function* greedy(model, ids, { limit = longest(ids), forced = null, repeats = Infinity, ...options } = {}) {
    const source = model.encode(ids, options), target = [];
    let cache = model.begin(), last = START;
    for (;;) {
      const { logProbs: all, cache: grown } = model.step(source, cache, last, options);
      const logProbs = withoutLoops(all, target, repeats);
      cache = grown;
      const best = logProbs.reduce((most, value, id) => (value > logProbs[most] ? id : most), 0);
      last = forced ? forced[target.length] ?? END : best;
      if (last !== END && target.length === limit) return;
      if (last !== END) target.push(last);
      yield { ids: target, logProbs, finished: last === END };
      if (last === END) return;
    }
  }

  // From the parts of a model: base64 of the weights, and in the first config and the tokenizer's merges.
  function load(parts) {
    const [{ config, merges }] = parts, bytes = fromBase64(parts.map(({ weights }) => weights).join(""));
    return { model: new Transformer(config, readTensors(bytes)), tokenizer: new Tokenizer(merges) };
  }

  globalThis.EdgewiseEngine = { greedy, load, START, END };
})();
