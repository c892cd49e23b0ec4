// Corruption and occlusion of the image.
const { make } = AttentionDrawing;
const by = (id) => document.getElementById(id);

export class Controls {
  // `onchange` is called after the corruption or its severity changed.
  constructor(start, view, onchange) {
    this.view = view;
    const words = (name) => name.replaceAll("_", " ");
    by("corruption").replaceChildren(...Object.entries(start.corruptions).map(([group, names]) =>
      make("optgroup", { label: group }, ...names.map((name) => make("option", { value: name, text: words(name) })))));
    for (const [id, kind] of [["corruption", "change"], ["severity", "input"]]) {
      by(id).addEventListener(kind, () => { this.show(); onchange(); });
    }
    by("occlusion").textContent = start.occlusion;
    by("paint").addEventListener("click", () => {
      view.painting = !view.painting;
      by("paint").setAttribute("aria-pressed", String(view.painting));
      view.draw(false);
    });
    by("clear").addEventListener("click", () => {
      view.hidden.clear();
      view.refresh(true);
    });
  }

  get corruption() {
    return by("corruption").value;
  }

  get severity() {
    return Number(by("severity").value);
  }

  // The changes of the image in words.
  get text() {
    const corrupted = this.severity ? `${by("corruption").selectedOptions[0].textContent} of severity ${this.severity}` : "";
    const hidden = this.view.hidden.size ? `${this.view.hidden.size} patches hidden` : "";
    return [corrupted, hidden].filter(Boolean).join(", ");
  }

  set({ corruption, severity }) {
    if (corruption) by("corruption").value = corruption;
    by("severity").value = String(severity);
    this.show();
  }

  show() {
    by("severity-value").textContent = this.severity ? `${this.severity} of 5` : "none";
    by("severity").setAttribute("aria-valuetext", by("severity-value").textContent);
  }
}
