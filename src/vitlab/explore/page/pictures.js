// The images of the page: thumbnails to choose from, and uploads by file dialog or drag and drop.
import { upload } from "./server.js";

const { make } = AttentionDrawing;
const by = (id) => document.getElementById(id);

export class Pictures {
  // `onchoose` receives the name of an image, `onerror` a message or an empty text.
  constructor(start, onchoose, onerror) {
    Object.assign(this, { onchoose, onerror, limit: start.max_bytes, names: start.pictures.map(({ name }) => name) });
    by("pictures").replaceChildren(...start.pictures.map((entry, i) => this.button(entry, i + 1)));
    by("upload").addEventListener("change", (event) => {
      if (event.target.files.length) this.add(event.target.files[0]);
      event.target.value = "";
    });
    for (const kind of ["dragover", "drop", "dragleave"]) {
      document.addEventListener(kind, (event) => {
        event.preventDefault();
        by("drop").classList.toggle("over", kind === "dragover");
        if (kind === "drop" && event.dataTransfer.files.length) this.add(event.dataTransfer.files[0]);
      });
    }
  }

  button({ name, label }, number) {
    const text = label ? `Image ${number}: ${label}` : `Image ${number}`;
    const image = make("img", { src: `api/pictures/${encodeURIComponent(name)}`, alt: "", loading: "lazy" });
    return make("button", { type: "button", value: name, title: label || "uploaded", "aria-label": text, onclick: () => this.onchoose(name) }, image);
  }

  mark(name) {
    for (const button of by("pictures").children) button.setAttribute("aria-pressed", String(button.value === name));
  }

  async add(file) {
    try {
      if (file.size > this.limit) throw new Error(`the file is larger than ${this.limit / 2 ** 20} MB; choose a smaller one`);
      const added = await upload(file);
      by("pictures").prepend(this.button(added, this.names.unshift(added.name)));
      this.onerror("");
      this.onchoose(added.name);
    } catch (error) {
      this.onerror(`${file.name}: ${error.message}`);
    }
  }
}
