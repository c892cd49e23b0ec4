// The attention view: panels side by side, each for a model and a condition, with the image, the predictions, and a
// table of layers: attention maps of each head for the selected query, their entropy, and the logit lens.
//
// The explorer and reports use it. A source provides the data:
//   models: names; conditions: names; grid: [rows, columns] of the selectable patches
//   view(model, condition)        -> {label, picture, predictions, layers}
//   rows(model, condition, query) -> for each layer {maps, peaks, prefix, entropy} or {why}; maps are bytes (head, cell)
// A query is {row, column} or {prefix}. All strings are inserted as text, never as markup.
"use strict";

// A report may have several views, each with a copy of this file: the first one is used.
var AttentionView = AttentionView || (() => {
  // Viridis at ten points: readable without colour vision and in grey.
  const STOPS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
    [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]];
  const COLOURS = Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (STOPS.length - 1), low = Math.min(Math.floor(place), STOPS.length - 2);
    return STOPS[low].map((value, c) => Math.round(value + (STOPS[low + 1][c] - value) * (place - low)));
  });

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function bytes(base64) {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  }

  const percent = (share) => (share >= 0.9995 ? "100 %" : `${(100 * share).toFixed(1)} %`);
  const mean = (numbers) => numbers.reduce((sum, value) => sum + value, 0) / Math.max(1, numbers.length);

  // Draw one map as a small canvas, one pixel per key; `gain` scales its bytes to the common scale.
  function paintMap(canvas, values, [rows, columns], gain, alpha) {
    canvas.width = columns;
    canvas.height = rows;
    const image = new ImageData(columns, rows);
    for (let i = 0; i < rows * columns; i++) {
      const level = Math.round(values[i] * gain);
      image.data.set(COLOURS[level], 4 * i);
      image.data[4 * i + 3] = alpha ? 70 + Math.round(level * 0.6) : 255;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  async function bitmap(picture) {
    if (typeof picture === "string") {
      const image = new Image();
      image.src = picture;
      await image.decode();
      return image;
    }
    const canvas = make("canvas", { width: picture.width, height: picture.height });
    const pixels = new ImageData(picture.width, picture.height);
    const rgb = bytes(picture.rgb);
    for (let i = 0; i < picture.width * picture.height; i++) {
      pixels.data.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
      pixels.data[4 * i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas;
  }

  class Panel {
    constructor(view, number, model, condition) {
      Object.assign(this, { view, number, model, condition, found: null, rows: null, picture: null });
      this.canvas = make("canvas", { class: "av-picture", tabindex: 0, role: "application", "aria-roledescription": "patch selection" });
      this.predictions = make("ol", { class: "av-predictions", "aria-label": "Most probable classes" });
      this.truth = make("p", { class: "av-truth" });
      this.body = make("tbody");
      const columns = [make("th", { scope: "col", text: "layer" }), make("th", { scope: "col", text: "heads" }),
        make("th", { scope: "col", text: "entropy", title: "entropy of the attention of this query in nats, mean over heads" }),
        make("th", { scope: "col", text: "logit lens", title: "the model's last norm and head applied to the output of this layer" })];
      const table = make("table", { class: "av-layers" }, make("thead", {}, make("tr", {}, ...columns)), this.body);
      const top = make("div", { class: "av-top" }, this.canvas, make("div", {}, this.truth, this.predictions));
      this.notes = make("div", { class: "av-notes" });
      this.root = make("section", { class: "av-panel", "aria-label": `Panel ${number + 1}` }, this.choices(), top, table, this.notes);
      view.listen(this.canvas);
    }

    choices() {
      const { source } = this.view;
      const choose = (label, names, value, set) => {
        if (names.length < 2) return make("span", { class: "av-name", text: names[0] });
        const options = names.map((name, i) => make("option", { value: i, text: name, selected: i === value ? "" : false }));
        const change = (event) => {
          set(Number(event.target.value));
          event.target.title = names[Number(event.target.value)];
          this.view.refresh(true);
        };
        return make("select", { title: names[value], "aria-label": `${label} of panel ${this.number + 1}`, onchange: change }, ...options);
      };
      const model = choose("Model", source.models, this.model, (i) => { this.model = i; });
      const condition = source.conditions.length > 1
        ? choose("Condition", source.conditions, this.condition, (i) => { this.condition = i; }) : "";
      return make("header", { class: "av-choices" }, model, condition);
    }

    async load(all) {
      const { source, query } = this.view;
      if (all || !this.found) {
        this.found = await source.view(this.model, this.condition);
        this.picture = await bitmap(this.found.picture);
      }
      const rows = await source.rows(this.model, this.condition, query);
      for (const row of rows) if (typeof row.maps === "string") row.maps = bytes(row.maps);
      this.rows = rows;
    }

    draw(all) {
      if (all) {
        this.drawPredictions();
        this.drawLayers();
      }
      const largest = Math.max(...this.rows.flatMap((row) => row.peaks || [0]));
      this.rows.forEach((row, i) => this.drawRow(this.found.layers[i], row, this.cells[i], largest));
      this.drawPicture();
    }

    drawPredictions() {
      const { label, predictions } = this.found;
      this.truth.textContent = label ? `label: ${label}` : "";
      this.predictions.replaceChildren(...predictions.map(({ name, probability }) => {
        const bar = make("span", { class: "av-bar" });
        bar.style.width = `${100 * probability}%`;
        const right = label && name === label;
        return make("li", { class: right ? "av-right" : "" }, make("span", { class: "av-class", text: right ? `${name} ✓` : name, title: name }),
          make("span", { class: "av-track" }, bar), make("span", { class: "av-number", text: percent(probability) }));
      }));
    }

    drawLayers() {
      this.cells = this.found.layers.map((layer, i) => {
        const maps = Array.from({ length: layer.heads }, (_, head) => {
          const pin = () => this.view.pin(i, head);
          const show = (on) => () => this.view.preview(on ? { layer: i, head } : null);
          return make("button", { type: "button", class: "av-map", "aria-pressed": "false", onclick: pin,
            onmouseenter: show(true), onmouseleave: show(false), onfocus: show(true), onblur: show(false) }, make("canvas"));
        });
        const strip = make("div", { class: "av-strip" }, ...maps);
        strip.style.setProperty("--heads", Math.max(1, layer.heads));
        const why = make("span", { class: "av-why" });
        const entropy = make("td", { class: "av-entropy" });
        const name = make("th", { scope: "row", text: String(i + 1), title: `${layer.name}: ${layer.kind}` });
        const row = make("tr", {}, name, make("td", {}, strip, why), entropy, this.lens(layer));
        return { row, maps, strip, why, entropy };
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

    lens(layer) {
      if (!layer.lens) return make("td", { class: "av-lens av-none", text: "–", title: layer.why_no_lens });
      const [first] = layer.lens, all = layer.lens.map(({ name, probability }) => `${name} ${percent(probability)}`);
      const bar = make("span", { class: "av-bar" });
      bar.style.width = `${100 * first.probability}%`;
      const same = first.name === this.found.predictions[0].name;
      return make("td", { class: same ? "av-lens av-settled" : "av-lens", title: all.join("\n") },
        make("span", { class: "av-class", text: first.name }), make("span", { class: "av-track" }, bar),
        make("span", { class: "av-number", text: percent(first.probability) }));
    }

    drawRow(layer, row, cell, largest) {
      cell.strip.hidden = !row.maps;
      cell.why.textContent = row.maps ? "" : row.why;
      if (!row.maps) {
        cell.entropy.replaceChildren(make("span", { class: "av-none", text: "–" }));
        return;
      }
      const size = layer.grid[0] * layer.grid[1];
      cell.maps.forEach((button, head) => {
        const values = row.maps.subarray(head * size, (head + 1) * size);
        const gain = this.view.common ? row.peaks[head] / (largest || 1) : 1;
        paintMap(button.firstChild, values, layer.grid, gain);
        const prefix = row.prefix[head].map((value, k) => `${k ? `prefix token ${k + 1}` : "class token"} ${percent(value)}`);
        const about = [`layer ${this.cells.indexOf(cell) + 1}, head ${head + 1}`, `largest ${percent(row.peaks[head])}`,
          ...prefix.map((text) => `to ${text}`), `entropy ${row.entropy[head].toFixed(2)} of ${layer.bound.toFixed(2)}`];
        button.title = about.join("\n");
        button.setAttribute("aria-label", about.join(", "));
      });
      const here = mean(row.entropy), bar = make("span", { class: "av-bar" });
      bar.style.width = `${layer.bound ? Math.min(100, (100 * here) / layer.bound) : 0}%`;
      cell.entropy.replaceChildren(make("span", { class: "av-number", text: here.toFixed(2) }), make("span", { class: "av-track" }, bar));
      cell.entropy.title = `${here.toFixed(3)} of at most ${layer.bound.toFixed(3)} nats for this query; `
        + `${mean(layer.entropy).toFixed(3)} for all queries of the image`;
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
      for (const cell of this.condition || view.source.conditions.length < 2 ? view.hidden : []) {
        const row = Math.floor(cell / columns), column = cell % columns;
        context.fillStyle = "rgba(128,128,128,.55)";
        context.fillRect(column * x, row * y, x, y);
      }
      if (view.query.prefix === undefined) {
        for (const [style, width] of [["#000", 5], ["#fff", 2.5]]) {
          context.strokeStyle = style;
          context.lineWidth = width;
          context.strokeRect(view.query.column * x, view.query.row * y, x, y);
        }
      }
      canvas.setAttribute("aria-label", `${view.where()}. Arrow keys move${view.painting ? ", space hides or shows the patch" : ""}.`);
    }

    drawOverlay(context) {
      const shown = this.view.previewed || this.view.pinned;
      this.cells.forEach((cell, layer) => cell.maps.forEach((button, head) => {
        const on = this.view.pinned && this.view.pinned.layer === layer && this.view.pinned.head === head;
        button.setAttribute("aria-pressed", String(Boolean(on)));
      }));
      const row = shown && this.rows[shown.layer], layer = shown && this.found.layers[shown.layer];
      if (!row || !row.maps || shown.head >= layer.heads) return;
      const size = layer.grid[0] * layer.grid[1], map = make("canvas");
      paintMap(map, row.maps.subarray(shown.head * size, (shown.head + 1) * size), layer.grid, 1, true);
      context.imageSmoothingEnabled = false;
      context.drawImage(map, 0, 0, context.canvas.width, context.canvas.height);
    }
  }

  class View {
    constructor(root, source) {
      const [rows, columns] = source.grid;
      Object.assign(this, { root, source, hidden: new Set(), painting: false, onpaint: null, onerror: null });
      Object.assign(this, { common: false, pinned: null, previewed: null, working: false, wanted: null });
      this.query = { row: Math.floor(rows / 2), column: Math.floor(columns / 2) };
      this.status = make("span", { class: "av-status", role: "status" });
      this.prefixes = make("span", { class: "av-prefixes" });
      const common = make("input", { type: "checkbox", onchange: (event) => { this.common = event.target.checked; this.draw(false); } });
      const legend = make("span", { class: "av-legend", "aria-hidden": "true" }, make("span", { text: "0" }), make("span", { class: "av-scale" }), make("span", { text: "largest" }));
      const bar = make("div", { class: "av-bar-top" }, this.status, this.prefixes, make("label", {}, common, " one scale for all maps"), legend);
      const many = source.conditions.length > 1, two = source.models.length > 1;
      const start = two ? [[0, many ? 1 : 0], [1, many ? 1 : 0]] : many ? [[0, 0], [0, 1]] : [[0, 0]];
      this.panels = start.map(([model, condition], i) => new Panel(this, i, model, condition));
      root.classList.add("attention-view");
      root.replaceChildren(bar, make("div", { class: "av-panels" }, ...this.panels.map((panel) => panel.root)));
    }

    where() {
      const { query, source } = this, [rows, columns] = source.grid;
      if (query.prefix !== undefined) return query.prefix ? `Query: prefix token ${query.prefix + 1}` : "Query: class token";
      return `Query: patch in row ${query.row + 1} of ${rows}, column ${query.column + 1} of ${columns}`;
    }

    // Load the data and draw it. Requests made during loading are merged into one that follows.
    async refresh(all) {
      this.wanted = Boolean(all) || this.wanted === true;
      if (this.working) return;
      this.working = true;
      this.root.setAttribute("aria-busy", "true");
      try {
        while (this.wanted !== null) {
          const now = this.wanted;
          this.wanted = null;
          await Promise.all(this.panels.map((panel) => panel.load(now)));
          this.draw(now);
        }
        if (this.onerror) this.onerror("");
      } catch (error) {
        this.wanted = null;
        if (!this.onerror) throw error;
        this.onerror(error.message);
      } finally {
        this.working = false;
        this.root.setAttribute("aria-busy", "false");
      }
    }

    draw(all) {
      if (this.panels.some((panel) => !panel.rows)) return;
      if (all) this.drawPrefixes();
      for (const panel of this.panels) panel.draw(all);
      this.status.textContent = this.where();
      for (const button of this.prefixes.children) button.setAttribute("aria-pressed", String(Number(button.value) === this.query.prefix));
    }

    drawPrefixes() {
      const count = Math.max(0, ...this.panels.flatMap((panel) => panel.found.layers.map((layer) => layer.queries || 0)));
      if (count === this.prefixes.childElementCount) return;
      this.prefixes.replaceChildren(...Array.from({ length: count }, (_, k) => make("button",
        { type: "button", value: k, text: k ? `prefix token ${k + 1}` : "class token", onclick: () => this.ask({ prefix: k }) })));
    }

    ask(query) {
      this.query = query;
      this.refresh(false);
    }

    pin(layer, head) {
      const same = this.pinned && this.pinned.layer === layer && this.pinned.head === head;
      this.pinned = same ? null : { layer, head };
      if (same) this.previewed = null;
      for (const panel of this.panels) panel.drawPicture();
    }

    preview(shown) {
      this.previewed = shown;
      for (const panel of this.panels) if (panel.rows) panel.drawPicture();
    }

    listen(canvas) {
      const cell = (event) => {
        const box = canvas.getBoundingClientRect(), [rows, columns] = this.source.grid;
        const place = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
        return { row: place((event.clientY - box.top) / box.height, rows), column: place((event.clientX - box.left) / box.width, columns) };
      };
      let hiding = null;
      canvas.addEventListener("pointerdown", (event) => {
        const at = cell(event);
        if (this.painting) {
          hiding = !this.hidden.has(this.number(at));
          canvas.setPointerCapture(event.pointerId);
          this.paint(at, hiding);
        } else this.ask(at);
      });
      canvas.addEventListener("pointermove", (event) => { if (hiding !== null) this.paint(cell(event), hiding); });
      for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { hiding = null; });
      canvas.addEventListener("keydown", (event) => this.key(event));
    }

    key(event) {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }, [rows, columns] = this.source.grid;
      const from = this.query.prefix === undefined ? this.query : { row: 0, column: 0 };
      if (event.key in steps) {
        const [down, right] = steps[event.key];
        this.ask({ row: (from.row + down + rows) % rows, column: (from.column + right + columns) % columns });
      } else if (event.key === " " && this.painting && this.query.prefix === undefined) {
        this.paint(this.query, !this.hidden.has(this.number(this.query)));
      } else return;
      event.preventDefault();
    }

    number(at) {
      return at.row * this.source.grid[1] + at.column;
    }

    paint(at, hide) {
      const cell = this.number(at);
      if (this.hidden.has(cell) === hide) return;
      if (hide) this.hidden.add(cell);
      else this.hidden.delete(cell);
      for (const panel of this.panels) if (panel.rows) panel.drawPicture();
      if (this.onpaint) this.onpaint();
    }
  }

  // The source of a report: all data is in the page.
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
    const root = make("div"), view = new View(root, source);
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

  return { View, make, showStored };
})();

for (const place of document.querySelectorAll("[data-attention-view]")) AttentionView.showStored(place);
