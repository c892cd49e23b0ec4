// Ablated heads, branches and blocks of each model: chosen by clicks in the panels, listed and restored in the sidebar.
const { make } = AttentionDrawing;
const by = (id) => document.getElementById(id);
const NAMES = { head: "head", attn: "attention", mlp: "MLP", block: "block" };

const keyOf = ({ layer, at, head }) => (at === "head" ? `${layer}.head.${head}` : `${layer}.${at}`);

export class Ablations {
  constructor(models, view) {
    Object.assign(this, { models, view, chosen: models.map(() => new Map()) });
    view.isAblated = (model, layer, at, head) => this.chosen[model].has(keyOf({ layer, at, head }));
    view.onablate = (model, ablation) => this.toggle(model, ablation);
    by("ablate").addEventListener("click", () => {
      view.ablating = !view.ablating;
      by("ablate").setAttribute("aria-pressed", String(view.ablating));
      if (view.ablating && !view.panels.some((panel) => panel.changed)) {
        view.panels.at(-1).choose("condition", 1);
        view.refresh(true);
      } else view.draw(false);
    });
    by("reset").addEventListener("click", () => {
      this.set(models.map(() => []));
      by("ablate").focus();
      view.refresh(true);
    });
  }

  // The ablations of a model, for a request.
  of(model) {
    return [...this.chosen[model].values()];
  }

  set(lists) {
    this.chosen = lists.map((list) => new Map(list.map((ablation) => [keyOf(ablation), ablation])));
    this.list();
  }

  // Ablate or restore a place; if the panels are locked, in all models on the page that have it.
  toggle(model, ablation) {
    const key = keyOf(ablation), remove = this.chosen[model].has(key);
    for (const panel of this.view.panels) {
      if (panel.model !== model && !(this.view.locked && this.has(panel, ablation))) continue;
      if (remove) this.chosen[panel.model].delete(key);
      else this.chosen[panel.model].set(key, ablation);
    }
    this.list();
    this.view.refresh(true);
  }

  has(panel, { layer, at, head }) {
    const about = panel.found && panel.found.layers[layer];
    return Boolean(about && about.places && (head || 0) < (about.places[at] || 0));
  }

  name(model, { layer, at, head }) {
    const place = `layer ${layer + 1}, ${NAMES[at]}${at === "head" ? ` ${head + 1}` : ""}`;
    return this.models.length > 1 ? `${place} of ${this.models[model]}` : place;
  }

  texts() {
    return this.models.flatMap((_, model) => this.of(model).map((ablation) => `without ${this.name(model, ablation)}`));
  }

  list() {
    const items = this.models.flatMap((_, model) => this.of(model).map((ablation) => {
      const text = this.name(model, ablation);
      const restore = () => {
        this.chosen[model].delete(keyOf(ablation));
        this.list();
        by("ablate").focus();
        this.view.refresh(true);
      };
      return make("li", {}, make("span", { text }), make("button", { type: "button", text: "×", "aria-label": `Restore ${text}`, onclick: restore }));
    }));
    by("ablated").replaceChildren(...items);
    by("reset").disabled = !items.length;
  }
}
