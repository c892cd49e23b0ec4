// Rollout and gradient-weighted attention over the image: method, last layer and class.
const { make } = AttentionDrawing;
const by = (id) => document.getElementById(id);

export class Overlay {
  constructor(layers, view) {
    Object.assign(this, { view, layers });
    by("overlay-layer").max = String(layers);
    by("method").addEventListener("change", () => this.change());
    by("target").addEventListener("change", () => this.change());
    by("overlay-layer").addEventListener("input", () => {
      this.show();
      view.drawPictures();
      view.onchange();
    });
    this.set({});
  }

  // The state of the overlay, also in the address.
  get state() {
    return { method: by("method").value, layer: Number(by("overlay-layer").value) - 1, target: by("target").value };
  }

  set({ method = "", layer = this.layers - 1, target = "" }) {
    by("method").value = method;
    by("overlay-layer").value = String(layer + 1);
    this.offer([target]);
    by("target").value = target;
    this.show();
  }

  // The classes to choose from: the predicted one, and all that the panels show.
  offer(names) {
    const chosen = by("target").value, all = [...new Set(["", chosen, ...names])];
    if (String(all) === String([...by("target").options].map((option) => option.value))) return;
    by("target").replaceChildren(...all.map((name) => make("option", { value: name, text: name || "predicted class" })));
    by("target").value = chosen;
  }

  change() {
    for (const panel of this.view.panels) panel.pinned = null;
    this.show();
    this.view.refresh(true);
  }

  show() {
    const { method, layer, target } = this.state;
    by("overlay-options").hidden = !method;
    by("target-choice").hidden = method !== "gradient";
    by("overlay-layer-value").textContent = `${layer + 1} of ${this.layers}`;
    const name = by("method").selectedOptions[0].textContent + (method === "gradient" && target ? ` for ${target}` : "");
    this.view.relevance = method ? { method, layer, target: method === "gradient" && target ? target : null, name } : null;
  }
}
