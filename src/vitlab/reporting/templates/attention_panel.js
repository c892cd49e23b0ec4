// One panel of the attention view: a model and a condition, with the image, the predictions, and a table of layers.
"use strict";

var AttentionPanel = AttentionPanel || (() => {
  const { make, bytes, percent, points, signed, mean, largest, paintMap, bitmap } = AttentionDrawing;
  const { LENS, verdict, prediction, lens } = AttentionPredictions;

  const PLACES = { attn: "attention", mlp: "MLP", block: "block" };
  const tokenName = (k) => (k ? `prefix token ${k + 1}` : "class token");

  return class AttentionPanel {
    constructor(view, number, model, condition, query) {
      Object.assign(this, { view, number, model, condition, query, found: null, rows: null, picture: null, relevance: null });
      Object.assign(this, { pinned: null, previewed: null, cells: [] });
      this.canvas = make("canvas", { class: "av-picture", tabindex: 0, role: "application", "aria-roledescription": "patch selection" });
      this.caption = make("p", { class: "av-caption" });
      this.truth = make("div", { class: "av-truth" });
      this.reference = make("p", { class: "av-reference" });
      this.predictions = make("ol", { class: "av-predictions", "aria-label": "Most probable classes" });
      this.body = make("tbody");
      const columns = [make("th", { scope: "col", text: "layer" }), make("th", { scope: "col", text: "heads" }),
        make("th", { scope: "col", text: "entropy", title: "entropy of the attention of this query in nats, mean over heads" }),
        make("th", { scope: "col", text: "logit lens", title: LENS })];
      const table = make("table", { class: "av-layers" }, make("thead", {}, make("tr", {}, ...columns)), this.body);
      this.top = make("div", { class: "av-top" }, make("div", {}, this.canvas, this.caption), make("div", {}, this.truth, this.reference, this.predictions));
      this.notes = make("div", { class: "av-notes" });
      this.selects = {};
      this.root = make("section", { class: "av-panel", "aria-label": `Panel ${number + 1}` }, this.choices(), this.top, table, this.notes);
      view.listen(this);
    }

    choices() {
      const { source } = this.view;
      const choose = (label, key, names) => {
        if (names.length < 2) return make("span", { class: "av-name", text: names[0] });
        const options = names.map((name, i) => make("option", { value: i, text: name, selected: i === this[key] ? "" : false }));
        const change = (event) => { this.choose(key, Number(event.target.value)); this.view.refresh(true); };
        this.selects[key] = make("select", { title: names[this[key]], "aria-label": `${label} of panel ${this.number + 1}`, onchange: change }, ...options);
        return this.selects[key];
      };
      const condition = source.conditions.length > 1 ? choose("Condition", "condition", source.conditions) : "";
      return make("header", { class: "av-choices" }, choose("Model", "model", source.models), condition);
    }

    // Set `model` or `condition`.
    choose(key, value) {
      this[key] = value;
      const select = this.selects[key];
      if (!select) return;
      select.value = String(value);
      select.title = select.selectedOptions[0].textContent;
    }

    get changed() {
      return this.condition > 0 || this.view.source.conditions.length < 2;
    }

    async load(all) {
      const { source, relevance } = this.view;
      if (all || !this.found) {
        this.found = await source.view(this.model, this.condition);
        this.picture = await bitmap(this.found.picture);
      }
      const rows = await source.rows(this.model, this.condition, this.query);
      for (const row of rows) if (typeof row.maps === "string") row.maps = bytes(row.maps);
      this.rows = rows;
      if (all) this.relevance = relevance ? await this.loadRelevance(relevance) : null;
    }

    // The overlay of the explorer: {grid, maps, peaks, prefix} by layer, or {why}.
    async loadRelevance({ method, target }) {
      try {
        const found = await this.view.source.relevance(this.model, this.condition, method, target);
        return { ...found, maps: bytes(found.maps) };
      } catch (error) {
        return { why: error.message };
      }
    }

    // The attention of one head to each patch, minus that of the first panel if differences are shown; null if there is none.
    map(layer, head) {
      const own = this.attention(layer, head);
      if (!own || !this.differs) return own;
      const other = this.view.panels[0].attention(layer, head);
      if (!other || String(other.grid) !== String(own.grid)) return null;
      return { grid: own.grid, values: own.values.map((value, i) => value - other.values[i]), difference: true };
    }

    attention(layer, head) {
      const row = this.rows[layer], about = this.found.layers[layer];
      if (!row || !row.maps || head >= about.heads) return null;
      const size = about.grid[0] * about.grid[1], scale = row.peaks[head] / 255;
      return { grid: about.grid, values: Float32Array.from(row.maps.subarray(head * size, (head + 1) * size), (value) => value * scale) };
    }

    // Whether this panel shows differences from the first one.
    get differs() {
      return this.view.difference && this.number > 0;
    }

    draw(all) {
      if (all) {
        this.drawPredictions();
        this.drawLayers();
      }
      const maps = this.found.layers.map((layer, i) => Array.from({ length: layer.heads }, (_, head) => this.map(i, head)));
      const most = Math.max(0, ...maps.flat().map((map) => (map ? largest(map.values) : 0)));
      this.cells.forEach((cell, i) => this.drawRow(i, cell, maps[i], most));
      this.drawAblations();
      this.drawPicture();
    }

    drawPredictions() {
      this.truth.replaceChildren(...verdict(this.found));
      this.reference.textContent = this.found.reference ? `Change in points from ${this.found.reference}` : "";
      this.predictions.replaceChildren(...this.found.predictions.map((each) => prediction(each, this.found)));
    }

    drawLayers() {
      this.cells = this.found.layers.map((layer, i) => {
        const maps = Array.from({ length: layer.heads }, (_, head) => this.view.mapButton(this, i, head));
        const strip = make("div", { class: "av-strip" }, ...maps);
        strip.style.setProperty("--heads", Math.max(1, layer.heads));
        const why = make("span", { class: "av-why" });
        const entropy = make("td", { class: "av-entropy" });
        const name = make("th", { scope: "row", text: String(i + 1), title: `${layer.name}: ${layer.kind}` });
        const places = Object.keys(PLACES).filter((at) => layer.places && layer.places[at]);
        const buttons = places.map((at) => make("button", { type: "button", value: at, text: PLACES[at],
          "aria-label": `Ablate the ${PLACES[at]} of layer ${i + 1}`, onclick: () => this.view.ablate(this, i, at) }));
        const ablate = make("div", { class: "av-ablate" }, ...buttons);
        const row = make("tr", {}, name, make("td", {}, strip, why, ablate), entropy, lens(layer, this.found));
        return { row, maps, strip, why, entropy, ablate, buttons };
      });
      this.body.replaceChildren(...this.cells.map((cell) => cell.row));
      this.drawNotes();
    }

    // The reasons for missing entries, once for all layers with the same reason.
    drawNotes() {
      const { layers } = this.found, notes = new Map();
      layers.forEach((layer, i) => {
        if (!layer.lens) notes.set(layer.why_no_lens, [...(notes.get(layer.why_no_lens) || []), i + 1]);
      });
      const lines = [...notes].map(([why, at]) => `No prediction from layer${at.length > 1 ? "s" : ""} ${at.join(", ")}: ${why}.`);
      if (layers.some((layer) => layer.heads && layer.kind.includes("window"))) lines.push("In layers with windows, attention outside the window of the patch is zero.");
      this.notes.replaceChildren(...lines.map((text) => make("p", { text })));
    }

    drawRow(i, cell, maps, most) {
      const row = this.rows[i], layer = this.found.layers[i], drawn = row.maps && maps.every(Boolean);
      cell.strip.hidden = !drawn;
      cell.why.textContent = drawn ? "" : row.maps ? "no layer of this shape in panel 1" : row.why;
      if (!drawn) {
        cell.entropy.replaceChildren(make("span", { class: "av-none", text: "–" }));
        cell.entropy.title = "";
        return;
      }
      cell.maps.forEach((button, head) => {
        const own = largest(maps[head].values);
        paintMap(button.firstChild, maps[head], this.view.common ? most : own);
        const about = [`layer ${i + 1}, head ${head + 1}`, this.differs ? `largest difference ${points(own)} points` : `largest ${percent(row.peaks[head])}`,
          ...row.prefix[head].map((value, k) => `to ${tokenName(k)} ${percent(value)}`), `entropy ${row.entropy[head].toFixed(2)} of ${layer.bound.toFixed(2)}`];
        button.dataset.about = about.join(", ");
        button.title = about.join("\n");
      });
      this.drawEntropy(cell, row, layer, i);
    }

    drawEntropy(cell, row, layer, i) {
      const here = mean(row.entropy), bar = make("span", { class: "av-bar" });
      const change = this.differs ? here - mean(this.view.panels[0].rows[i].entropy) : 0;
      const share = layer.bound ? Math.min(1, (this.differs ? Math.abs(change) : here) / layer.bound) : 0; // the bar shows the number above it
      bar.style.width = `${100 * share}%`;
      bar.classList.toggle("av-less", change < 0);
      const text = this.differs ? signed(change, 2) : here.toFixed(2);
      cell.entropy.replaceChildren(make("span", { class: "av-number", text }), make("span", { class: "av-track" }, bar));
      cell.entropy.title = `${here.toFixed(3)} of at most ${layer.bound.toFixed(3)} nats for this query; `
        + `${mean(layer.entropy).toFixed(3)} for all queries of the image`;
    }

    // Mark what is ablated, and which maps are pinned.
    drawAblations() {
      const isAblated = (layer, at, head) => this.changed && this.view.isAblated(this.model, layer, at, head);
      this.cells.forEach((cell, layer) => {
        const whole = isAblated(layer, "block");
        cell.row.classList.toggle("av-without-block", whole);
        cell.ablate.hidden = !this.changed || !(this.view.ablating || cell.buttons.some((button) => isAblated(layer, button.value)));
        for (const button of cell.buttons) button.setAttribute("aria-pressed", String(isAblated(layer, button.value)));
        cell.maps.forEach((button, head) => {
          const gone = isAblated(layer, "head", head), pinned = this.pinned && this.pinned.layer === layer && this.pinned.head === head;
          const pressed = this.view.ablating && this.changed ? gone : Boolean(pinned);
          button.classList.toggle("av-ablated", gone || isAblated(layer, "attn"));
          button.classList.toggle("av-pinned", Boolean(pinned));
          button.setAttribute("aria-pressed", String(pressed));
          button.setAttribute("aria-label", `${this.view.ablating && this.changed ? "Ablate " : ""}${button.dataset.about || ""}${gone ? ", ablated" : ""}`);
        });
      });
    }

    // The map that lies over the image and its name: a previewed or pinned head, else the overlay of the explorer.
    overlay() {
      const shown = this.previewed || this.pinned;
      if (shown) {
        const map = this.map(shown.layer, shown.head);
        return map && { ...map, name: `layer ${shown.layer + 1}, head ${shown.head + 1}` };
      }
      if (!this.relevance || !this.view.relevance) return null;
      const { relevance } = this, { name, layer } = this.view.relevance;
      if (relevance.why) return { why: relevance.why };
      const at = Math.min(layer, relevance.peaks.length - 1), size = relevance.grid[0] * relevance.grid[1];
      const values = Float32Array.from(relevance.maps.subarray(at * size, (at + 1) * size), (value) => (value * relevance.peaks[at]) / 255);
      return { grid: relevance.grid, values, name: `${name} up to layer ${at + 1}`, prefix: relevance.prefix[at] };
    }

    drawPicture() {
      const { view, picture, canvas } = this, [rows, columns] = view.source.grid, wide = 448;
      canvas.width = wide;
      canvas.height = Math.round((wide * picture.height) / picture.width);
      const context = canvas.getContext("2d"), y = canvas.height / rows, x = wide / columns;
      context.imageSmoothingQuality = "high";
      context.drawImage(picture, 0, 0, wide, canvas.height);
      this.drawOverlay(context);
      context.strokeStyle = "rgba(255,255,255,.28)";
      context.beginPath();
      for (let i = 1; i < rows; i++) { context.moveTo(0, i * y); context.lineTo(wide, i * y); }
      for (let i = 1; i < columns; i++) { context.moveTo(i * x, 0); context.lineTo(i * x, canvas.height); }
      context.stroke();
      for (const cell of this.changed ? view.hidden : []) {
        const row = Math.floor(cell / columns), column = cell % columns;
        context.fillStyle = "rgba(128,128,128,.55)";
        context.fillRect(column * x, row * y, x, y);
      }
      if (this.query.prefix === undefined) this.drawFrame(context, this.query.column * x, this.query.row * y, x, y);
      canvas.setAttribute("aria-label", `${view.where(this.query)}. Arrow keys move${view.painting ? ", space hides or shows the patch" : ""}.`);
    }

    drawFrame(context, left, top, width, height) {
      for (const [style, line] of [["#000", 5], ["#fff", 2.5]]) {
        context.strokeStyle = style;
        context.lineWidth = line;
        context.strokeRect(left, top, width, height);
      }
    }

    drawOverlay(context) {
      const map = this.overlay();
      this.caption.textContent = !map ? "" : map.why ? `No overlay: ${map.why}` : map.name
        + (map.prefix ? `; ${percent(map.prefix)} on prefix tokens` : "");
      if (!map || map.why) return;
      const canvas = make("canvas");
      paintMap(canvas, map, largest(map.values), true);
      context.imageSmoothingEnabled = false;
      context.drawImage(canvas, 0, 0, context.canvas.width, context.canvas.height);
    }
  };
})();
