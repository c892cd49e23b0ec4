// The attention view of a report: all data is in the page.
"use strict";

var AttentionStored = AttentionStored || (() => {
  const { make, bytes } = AttentionDrawing;

  class Stored {
    constructor(data) {
      this.data = data;
      this.image = 0;
      this.grid = data.grid;
      this.models = data.models.map((model) => model.name);
      this.conditions = [""];
    }

    async view(model) {
      return this.data.models[model].images[this.image];
    }

    async rows(model, condition, query) {
      return this.data.models[model].images[this.image].layers.map((layer) => {
        if (!layer.stored) return { why: layer.why };
        const { stored } = layer, size = layer.grid[0] * layer.grid[1], places = stored.peaks[0].length;
        const lattice = places > layer.queries;
        if (query.prefix === undefined && !lattice) return { why: "only the class token is a query in this layer" };
        if (query.prefix !== undefined && query.prefix >= layer.queries) return { why: "this token is not in this layer" };
        const at = query.prefix !== undefined ? query.prefix : layer.queries + query.row * this.grid[1] + query.column;
        if (typeof stored.maps === "string") stored.maps = bytes(stored.maps);
        const maps = new Uint8Array(layer.heads * size), of = (table) => table.map((head) => head[at]);
        for (let head = 0; head < layer.heads; head++) {
          maps.set(stored.maps.subarray((head * places + at) * size, (head * places + at + 1) * size), head * size);
        }
        return { maps, peaks: of(stored.peaks), prefix: of(stored.prefix), entropy: of(stored.entropy) };
      });
    }
  }

  function showStored(place) {
    const source = new Stored(JSON.parse(document.getElementById(place.dataset.attentionView).textContent));
    const count = Math.min(...source.data.models.map((model) => model.images.length));
    const root = make("div"), view = new AttentionView(root, source);
    const choose = (i) => () => {
      source.image = i;
      view.refresh(true);
      buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === i)));
    };
    const buttons = Array.from({ length: count }, (_, i) => make("button", { type: "button", text: `image ${i + 1}`, "aria-pressed": String(i === 0), onclick: choose(i) }));
    delete place.dataset.attentionView;
    place.replaceChildren(make("div", { class: "attention-view av-images" }, ...(count > 1 ? buttons : [])), root);
    return view.refresh(true);
  }

  return { showStored };
})();

for (const place of document.querySelectorAll("[data-attention-view]")) AttentionStored.showStored(place);
