// Which edges of a translation's three graphs exist, after a reader's cuts. It draws nothing.
//
// An edge is [kind, layer, head, receiver, sender]. In a cut, each number may be ANY. Edges are numbered in
// that order of places, kinds as in KINDS, as in attention_on_edges.studies.cutting_edges.
(() => {
  "use strict";

  const { ANY, KINDS } = EdgewiseWords;

  class EdgeSet {
    // Of a model's layers and heads, for `sources` tokens and at most `targets` tokens that the decoder reads.
    constructor([layers, heads], sources, targets) {
      Object.assign(this, { layers, heads, sources, targets, gone: new Set() });
    }

    has = (...edge) => !this.gone.has(edge.join());

    // All edges that a cut names; without a cut, all edges. Only the first `targets` tokens of the target count.
    *edges([kind, layer, head, receiver, sender] = [ANY, ANY, ANY, ANY, ANY], targets = this.targets) {
      const range = (chosen, count) => (chosen === ANY ? Array.from({ length: count }, (_, i) => i) : chosen >= 0 && chosen < count ? [chosen] : []);
      for (const k of kind === ANY ? KINDS : [kind]) {
        const rows = k === "e2e" ? this.sources : targets;
        for (const l of range(layer, this.layers)) {
          for (const h of range(head, this.heads)) {
            for (const r of range(receiver, rows)) {
              const columns = k === "d2d" ? r + 1 : this.sources;
              for (const s of range(sender, columns)) if (s < columns && r < rows) yield [k, l, h, r, s];
            }
          }
        }
      }
    }

    cut(cut) {
      for (const edge of this.edges(cut)) this.gone.add(edge.join());
    }

    // Self-attention of the source to tokens at most `reach` away.
    narrow(reach) {
      for (const edge of this.edges(["e2e", ANY, ANY, ANY, ANY])) if (Math.abs(edge[3] - edge[4]) > reach) this.gone.add(edge.join());
    }

    // Keeps nothing but the edges with these numbers, in a graph whose target has `targets` tokens.
    keep(numbers, targets) {
      const all = [...this.edges(undefined, targets)];
      this.cut();
      for (const number of numbers) if (all[number]) this.gone.delete(all[number].join());
    }

    // The numbers of the edges that are left.
    left(targets) {
      return [...this.edges(undefined, targets)].flatMap((edge, number) => (this.has(...edge) ? [number] : []));
    }
  }

  globalThis.EdgewiseCuts = { EdgeSet };
})();
