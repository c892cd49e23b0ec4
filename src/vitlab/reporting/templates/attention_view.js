// The attention view: panels side by side, each for a model and a condition. Used by reports and the explorer.
//
// A source provides the data:
//   models: names; conditions: names; grid: [rows, columns] of the selectable patches
//   view(model, condition)        -> {label, picture, predictions, layers}
//   rows(model, condition, query) -> for each layer {maps, peaks, prefix, entropy} or {why}; maps are bytes (head, cell)
//   relevance(model, condition, method, target) -> {grid, maps, peaks, prefix} by layer; the explorer's overlay
// A query is {row, column} or {prefix}. All strings are inserted as text, never as markup.
"use strict";

var AttentionView = AttentionView || (() => {
  const { make, percent, points } = AttentionDrawing;
  const HINT = "Point at a map to read its values; click it to keep it over the image.";

  return class AttentionView {
    constructor(root, source) {
      const [rows, columns] = source.grid;
      Object.assign(this, { root, source, hidden: new Set(), painting: false, common: false, working: false, wanted: null });
      Object.assign(this, { locked: true, difference: false, relevance: null, ablating: false });
      Object.assign(this, { onpaint: null, onerror: null, onchange: null, onablate: null, isAblated: () => false });
      this.status = make("span", { class: "av-status", role: "status" });
      this.prefixes = make("span", { class: "av-prefixes" });
      this.readout = make("p", { class: "av-readout", text: HINT });
      const many = source.conditions.length > 1, two = source.models.length > 1;
      const start = two ? [[0, many ? 1 : 0], [1, many ? 1 : 0]] : many ? [[0, 0], [0, 1]] : [[0, 0]];
      const middle = { row: Math.floor(rows / 2), column: Math.floor(columns / 2) };
      this.panels = start.map(([model, condition], i) => new AttentionPanel(this, i, model, condition, middle));
      this.active = this.panels[0];
      root.classList.add("attention-view");
      root.replaceChildren(this.bar(), this.readout, make("div", { class: "av-panels" }, ...this.panels.map((panel) => panel.root)));
      this.drawOptions();
      window.addEventListener("resize", () => this.align());
    }

    bar() {
      const box = (key, text, title) => {
        this.boxes = { ...this.boxes, [key]: make("input", { type: "checkbox", onchange: (event) => this.set({ [key]: event.target.checked }) }) };
        return make("label", { title }, this.boxes[key], ` ${text}`);
      };
      const common = box("common", "one scale for all maps", "without it, the largest value of each map has the last colour");
      const compare = this.panels.length < 2 ? [] : [
        box("difference", "difference", "panel 2 shows its attention minus that of panel 1"),
        box("locked", "lock panels", "a patch or map that is chosen in one panel is chosen in the other")];
      this.legend = make("span", { class: "av-legend", "aria-hidden": "true" });
      return make("div", { class: "av-bar-top" }, this.status, this.prefixes, common, ...compare, this.legend);
    }

    // Set options: common, difference, locked. Differences are between equal queries, so they lock the panels.
    set(options) {
      Object.assign(this, options);
      if (this.difference) this.locked = true;
      if (this.locked) this.follow(this.active);
      this.drawOptions();
      this.refresh(false);
    }

    drawOptions() {
      for (const [key, box] of Object.entries(this.boxes)) box.checked = this[key];
      if (this.boxes.locked) this.boxes.locked.disabled = this.difference;
      const ends = (from, name, to) => make("span", { class: "av-ends" }, make("span", { text: from }), make("span", { class: `av-scale ${name}` }), make("span", { text: to }));
      this.legend.replaceChildren(ends("0", "", "largest"), ...(this.difference ? [ends("less", "av-diverging", "more")] : []));
    }

    // Choose the query and pinned map of a panel in all panels.
    follow({ query, pinned }) {
      for (const panel of this.panels) Object.assign(panel, { query, pinned });
    }

    where(query) {
      const [rows, columns] = this.source.grid;
      if (query.prefix !== undefined) return query.prefix ? `Query: prefix token ${query.prefix + 1}` : "Query: class token";
      return `Query: patch in row ${query.row + 1} of ${rows}, column ${query.column + 1} of ${columns}`;
    }

    // Load the data and draw it. Requests made during loading are merged into one that follows.
    async refresh(all) {
      this.wanted = Boolean(all) || this.wanted === true;
      if (this.onchange) this.onchange();
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
      this.align();
      this.status.textContent = this.locked ? this.where(this.active.query)
        : this.panels.map((panel, i) => `Panel ${i + 1}: ${this.where(panel.query).replace("Query: ", "")}`).join("; ");
      for (const button of this.prefixes.children) button.setAttribute("aria-pressed", String(Number(button.value) === this.active.query.prefix));
      if (this.onchange) this.onchange();
    }

    drawPrefixes() {
      const count = Math.max(0, ...this.panels.flatMap((panel) => panel.found.layers.map((layer) => layer.queries || 0)));
      if (count === this.prefixes.childElementCount) return;
      this.prefixes.replaceChildren(...Array.from({ length: count }, (_, k) => make("button",
        { type: "button", value: k, text: k ? `prefix token ${k + 1}` : "class token", onclick: () => this.ask(this.active, { prefix: k }) })));
    }

    // Give the rows of panels that are side by side equal heights, so that layers are next to each other.
    align() {
      const parts = this.panels.map((panel) => [panel.top, ...panel.cells.map((cell) => cell.row)]);
      for (const part of parts.flat()) part.style.height = "";
      const [first, second] = this.panels;
      if (!second || first.root.offsetTop !== second.root.offsetTop) return;
      const heights = parts.map((own) => own.map((part) => part.offsetHeight));
      parts.forEach((own, i) => own.forEach((part, k) => {
        const tallest = heights[1 - i][k];
        if (tallest > heights[i][k]) part.style.height = `${tallest}px`;
      }));
    }

    drawPictures() {
      for (const panel of this.panels) if (panel.rows) panel.drawPicture();
    }

    // The panels that a choice in one panel is for.
    together(panel) {
      this.active = panel;
      return this.locked ? this.panels : [panel];
    }

    ask(panel, query) {
      for (const each of this.together(panel)) each.query = query;
      this.refresh(false);
    }

    mapButton(panel, layer, head) {
      const preview = (on) => () => {
        for (const each of this.together(panel)) each.previewed = on ? { layer, head } : null;
        if (!on) this.readout.textContent = HINT;
        this.drawPictures();
      };
      const click = () => (this.ablating && panel.changed ? this.ablate(panel, layer, "head", head) : this.pin(panel, layer, head));
      const canvas = make("canvas");
      canvas.addEventListener("pointermove", (event) => {
        const { grid } = panel.found.layers[layer];
        if (grid) this.read(panel, this.place(canvas, event, grid), (each) => each.map(layer, head), `layer ${layer + 1}, head ${head + 1}`);
      });
      return make("button", { type: "button", class: "av-map", "aria-pressed": "false", onclick: click,
        onmouseenter: preview(true), onmouseleave: preview(false), onfocus: preview(true), onblur: preview(false) }, canvas);
    }

    pin(panel, layer, head) {
      const same = panel.pinned && panel.pinned.layer === layer && panel.pinned.head === head;
      for (const each of this.together(panel)) {
        each.pinned = same ? null : { layer, head };
        if (same) each.previewed = null;
      }
      for (const each of this.panels) each.drawAblations();
      this.drawPictures();
      if (this.onchange) this.onchange();
    }

    ablate(panel, layer, at, head) {
      this.active = panel;
      if (this.onablate) this.onablate(panel.model, { layer, at, ...(at === "head" ? { head } : {}) });
    }

    // Show the value of a map at a share of its height and width, in all panels that move together.
    read(panel, { y, x }, mapOf, name) {
      const shown = this.together(panel).map((each) => ({ each, map: mapOf(each) })).filter(({ map }) => map && map.values);
      const texts = shown.map(({ each, map: { grid: [rows, columns], values, difference } }) => {
        const value = values[Math.min(rows - 1, Math.floor(y * rows)) * columns + Math.min(columns - 1, Math.floor(x * columns))];
        return `panel ${each.number + 1}: ${difference ? `difference ${points(value)} points` : percent(value)}`;
      });
      if (!texts.length) return;
      const [rows, columns] = shown[0].map.grid;
      const at = `row ${Math.min(rows, Math.floor(y * rows) + 1)}, column ${Math.min(columns, Math.floor(x * columns) + 1)}`;
      this.readout.textContent = `${name}, patch in ${at}: ${texts.join("; ")}`;
    }

    // The position of a pointer as shares of height and width, and its cell of a grid.
    place(canvas, event, [rows, columns]) {
      const box = canvas.getBoundingClientRect(), share = (value) => Math.max(0, Math.min(0.9999, value));
      const y = share((event.clientY - box.top) / box.height), x = share((event.clientX - box.left) / box.width);
      return { y, x, row: Math.floor(y * rows), column: Math.floor(x * columns) };
    }

    listen(panel) {
      const { canvas } = panel, cell = (event) => this.place(canvas, event, this.source.grid);
      let hiding = null;
      canvas.addEventListener("pointerdown", (event) => {
        const { row, column } = cell(event);
        if (this.painting) {
          hiding = !this.hidden.has(this.number({ row, column }));
          canvas.setPointerCapture(event.pointerId);
          this.paint({ row, column }, hiding);
        } else this.ask(panel, { row, column });
      });
      canvas.addEventListener("pointermove", (event) => {
        const at = cell(event);
        if (hiding !== null) this.paint(at, hiding);
        if (panel.rows) this.readPicture(panel, at);
      });
      for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { hiding = null; });
      canvas.addEventListener("pointerleave", () => { this.readout.textContent = HINT; });
      canvas.addEventListener("keydown", (event) => this.key(panel, event));
    }

    readPicture(panel, at) {
      const map = panel.overlay();
      if (map && map.values) this.read(panel, at, (each) => each.overlay(), map.name);
    }

    key(panel, event) {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }, [rows, columns] = this.source.grid;
      const from = panel.query.prefix === undefined ? panel.query : { row: 0, column: 0 };
      if (event.key in steps) {
        const [down, right] = steps[event.key], to = { row: (from.row + down + rows) % rows, column: (from.column + right + columns) % columns };
        this.ask(panel, to);
        this.readPicture(panel, { y: (to.row + 0.5) / rows, x: (to.column + 0.5) / columns });
      } else if (event.key === " " && this.painting && panel.query.prefix === undefined) {
        this.paint(panel.query, !this.hidden.has(this.number(panel.query)));
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
      this.drawPictures();
      if (this.onpaint) this.onpaint();
    }
  };
})();
