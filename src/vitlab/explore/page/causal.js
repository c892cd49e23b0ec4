// The causal trace of the shown image: one request per layer, so that it shows progress and can be stopped.
import { ask } from "./server.js";

const { make, percent, points, largest, colour, paintMap } = AttentionDrawing;
const by = (id) => document.getElementById(id);
const NEEDS_CHANGE = "Choose a severity or hide patches first: the trace compares the clean image with the changed one.";

// Relative luminance of a colour, from 0 to 1 (WCAG 2).
function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export class CausalTrace {
  // `condition` returns the request of the changed condition of a model.
  constructor(start, view, condition) {
    Object.assign(this, { view, condition, layers: start.layers, found: [], running: 0, asked: "", shown: null });
    by("causal-model").replaceChildren(...start.models.map((name, i) => make("option", { value: i, text: name })));
    by("causal-model").hidden = start.models.length < 2;
    by("causal-model").addEventListener("change", () => this.check());
    by("causal-run").addEventListener("click", () => (this.running ? this.stop("Stopped.") : this.run()));
    this.picture = make("canvas", { class: "causal-picture", role: "img", "aria-label": "Effects of the patches of the chosen layer" });
    this.caption = make("p", { class: "note" });
  }

  get request() {
    return this.condition(Number(by("causal-model").value));
  }

  // Compare the shown result with the input: a result of another input is removed.
  check() {
    const { request } = this, changed = (request.severity && request.corruption) || request.hidden.length;
    by("causal-run").disabled = !changed && !this.running;
    if (this.asked && JSON.stringify(request) !== this.asked) {
      this.stop("");
      by("causal-result").replaceChildren();
      this.asked = "";
    }
    if (!this.asked) by("causal-status").textContent = changed ? "" : NEEDS_CHANGE;
  }

  stop(text) {
    this.running = 0;
    by("causal-run").textContent = "Compute";
    by("causal-progress").hidden = true;
    by("causal-status").textContent = text;
  }

  async run() {
    const run = Date.now() + Math.random(), { request } = this, count = this.layers[request.model];
    Object.assign(this, { running: run, asked: JSON.stringify(request), found: [], shown: null });
    by("causal-run").textContent = "Stop";
    by("causal-progress").hidden = false;
    try {
      for (let layer = 0; layer < count; layer++) {
        by("causal-progress").value = layer / count;
        by("causal-status").textContent = `Layer ${layer + 1} of ${count}`;
        const found = await ask("api/causal", { ...request, layer });
        if (this.running !== run) return;
        this.found.push(found);
        this.draw();
      }
      this.stop("Done.");
    } catch (error) {
      if (this.running === run) this.stop(error.message);
    }
  }

  draw() {
    const first = this.found.find((layer) => layer.tokens);
    if (!first) return;
    const numbers = this.found.flatMap((layer) => [layer.tokens, layer.prefix, layer.heads, layer.attention, layer.mlp].flat(2).filter((value) => value !== undefined));
    this.most = largest(numbers);
    this.mostOfPatches = largest(this.found.flatMap((layer) => (layer.tokens || []).flat()));
    const heads = Math.max(0, ...this.found.map((layer) => (layer.heads || []).length));
    const prefix = Math.max(0, ...this.found.map((layer) => (layer.prefix || []).length));
    const names = ["layer", "patches", ...Array.from({ length: prefix }, (_, k) => (k ? `prefix ${k + 1}` : "class token")), "attention", "MLP",
      ...Array.from({ length: heads }, (_, k) => `head ${k + 1}`)];
    const head = make("thead", {}, make("tr", {}, ...names.map((text) => make("th", { scope: "col", text }))));
    const rows = this.found.map((layer, i) => this.row(layer, i, prefix, heads));
    const about = make("p", {}, "Probability of ", make("b", { text: first.class }), `: ${percent(first.clean)} on the clean image, ${percent(first.corrupted)} on the changed one${this.ablated(first.ablations)}. `
      + "The table shows the change in points when a place of the changed run receives the clean activations.");
    const table = make("div", { class: "causal-scroll", role: "region", tabindex: 0, "aria-label": "Effects by layer" }, make("table", {}, head, make("tbody", {}, ...rows)));
    const focused = document.activeElement && document.activeElement.dataset.layer;
    by("causal-result").replaceChildren(about, make("div", { class: "causal-parts" }, make("div", {}, this.picture, this.caption), table));
    if (focused !== undefined) by("causal-result").querySelector(`[data-layer="${focused}"]`)?.focus();
    this.show(this.shown ?? this.strongest());
  }

  // The ablations hold in both runs; the panel of the clean image shows the model without them.
  ablated(count) {
    return count ? `, both with ${count} ablation${count > 1 ? "s" : ""}, so they differ from those of the model without ablations` : "";
  }

  // The layer with the largest effect of a patch.
  strongest() {
    const effects = this.found.map((layer) => (layer.tokens ? largest(layer.tokens.flat()) : -1));
    return effects.indexOf(Math.max(...effects));
  }

  row(layer, i, prefix, heads) {
    const name = make("th", { scope: "row", text: String(i + 1) });
    if (!layer.tokens) return make("tr", {}, name, make("td", { colspan: 3 + prefix + heads, class: "note", text: layer.why }));
    const canvas = make("canvas"), map = this.mapOf(layer);
    paintMap(canvas, map, this.mostOfPatches);
    const largestCell = map.values.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0);
    const choose = () => { this.shown = i; this.show(i); };
    const button = make("button", { type: "button", class: "causal-map", "data-layer": i, "aria-label": `Patches of layer ${i + 1}, largest effect ${points(largestCell)} points`,
      onclick: choose, onfocus: () => this.show(i), onmouseenter: () => this.show(i), onmouseleave: () => this.show(this.shown ?? this.strongest()) }, canvas);
    const pad = (values, count) => Array.from({ length: count }, (_, k) => (values || [])[k]);
    const effects = [...pad(layer.prefix, prefix), layer.attention, layer.mlp, ...pad(layer.heads, heads)];
    return make("tr", {}, name, make("td", {}, button), ...effects.map((value) => this.cell(value)));
  }

  cell(value) {
    if (value === undefined) return make("td", { class: "effect", text: "–" });
    const rgb = colour(value, this.most, true);
    const cell = make("td", { class: "effect", text: points(value), title: `${(100 * value).toFixed(3)} points` });
    cell.style.backgroundColor = `rgb(${rgb.join(",")})`;
    cell.style.color = luminance(rgb) < 0.179 ? "#fff" : "#000";  // the one with more contrast
    return cell;
  }

  mapOf(layer) {
    return { grid: [layer.tokens.length, layer.tokens[0].length], values: layer.tokens.flat(), difference: true };
  }

  // Draw the effects of the patches of a layer over the changed image.
  show(i) {
    const layer = this.found[i], panel = this.view.panels.find((each) => each.model === JSON.parse(this.asked).model && each.changed) || this.view.panels[0];
    if (!layer || !layer.tokens || !panel.picture) return;
    const { picture } = panel, context = this.picture.getContext("2d"), map = make("canvas"), found = this.mapOf(layer);
    this.picture.width = 448;
    this.picture.height = Math.round((448 * picture.height) / picture.width);
    context.drawImage(picture, 0, 0, this.picture.width, this.picture.height);
    paintMap(map, found, this.mostOfPatches, true);
    context.imageSmoothingEnabled = false;
    context.drawImage(map, 0, 0, this.picture.width, this.picture.height);
    this.caption.textContent = `Patches of layer ${i + 1}; the strongest colour is an effect of ${(100 * this.mostOfPatches).toFixed(1)} points.`;
    this.picture.onpointermove = (event) => {
      const { row, column } = this.view.place(this.picture, event, found.grid);
      this.caption.textContent = `Layer ${i + 1}, row ${row + 1}, column ${column + 1}: ${points(layer.tokens[row][column])} points.`;
    };
  }
}
