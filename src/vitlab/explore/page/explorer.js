// The live page: the controls on the left select the input, the view on the right requests data from the server.
"use strict";

(async () => {
  const { View, make } = AttentionView;
  const by = (id) => document.getElementById(id);
  const state = { image: "", corruption: "", severity: 0 };

  function fail(text) {
    by("error").textContent = text;
    by("error").hidden = !text;
  }

  async function ask(address, body) {
    const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    return answer(await fetch(address, options));
  }

  async function answer(response) {
    const found = await response.json().catch(() => ({ error: `the server returned status ${response.status}` }));
    if (!response.ok) throw new Error(found.error || `the server returned status ${response.status}`);
    return found;
  }

  function later(wait, act) {
    let timer = 0;
    return () => { clearTimeout(timer); timer = setTimeout(act, wait); };
  }

  const start = await ask("api/start");
  const condition = (which) => (which === 0 ? { image: state.image } : { ...state, hidden: [...view.hidden] });
  const [rows, columns] = start.grid;
  const source = {
    models: start.models,
    conditions: ["clean", "changed"],
    grid: start.grid,
    view: (model, which) => ask("api/view", { model, ...condition(which) }),
    rows: (model, which, query) => ask("api/rows", { model, ...condition(which),
      ...(query.prefix === undefined ? { y: (query.row + 0.5) / rows, x: (query.column + 0.5) / columns } : { prefix: query.prefix }) }),
  };
  const view = new View(by("view"), source);
  view.onerror = fail;
  const refresh = later(120, () => view.refresh(true));
  view.onpaint = refresh;

  // Images
  function choose(name) {
    state.image = name;
    for (const button of by("pictures").children) button.setAttribute("aria-pressed", String(button.value === name));
    view.refresh(true);
  }

  function picture({ name, label }, number) {
    const text = label ? `Image ${number}: ${label}` : `Image ${number}`;
    const image = make("img", { src: `api/pictures/${encodeURIComponent(name)}`, alt: "", loading: "lazy" });
    return make("button", { type: "button", value: name, title: label || "uploaded", "aria-label": text, onclick: () => choose(name) }, image);
  }

  async function upload(file) {
    try {
      if (file.size > 10 * 1024 * 1024) throw new Error("the file is larger than 10 MB; choose a smaller one");
      const added = await answer(await fetch("api/pictures", { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file }));
      by("pictures").prepend(picture(added, by("pictures").childElementCount + 1));
      fail("");
      choose(added.name);
    } catch (error) {
      fail(`${file.name}: ${error.message}`);
    }
  }

  by("pictures").replaceChildren(...start.pictures.map((entry, i) => picture(entry, i + 1)));
  by("upload").addEventListener("change", (event) => {
    if (event.target.files.length) upload(event.target.files[0]);
    event.target.value = "";
  });
  for (const kind of ["dragover", "drop", "dragleave"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      by("drop").classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) upload(event.dataTransfer.files[0]);
    });
  }

  // Corruption
  const words = (name) => name.replaceAll("_", " ");
  by("corruption").replaceChildren(...Object.entries(start.corruptions).map(([group, names]) =>
    make("optgroup", { label: group }, ...names.map((name) => make("option", { value: name, text: words(name) })))));
  function corrupt() {
    state.corruption = by("corruption").value;
    state.severity = Number(by("severity").value);
    by("severity-value").textContent = state.severity ? `${state.severity} of 5` : "none";
    by("severity").setAttribute("aria-valuetext", by("severity-value").textContent);
    refresh();
  }
  by("corruption").addEventListener("change", corrupt);
  by("severity").addEventListener("input", corrupt);
  state.corruption = by("corruption").value;

  // Occlusion
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

  choose(start.pictures[0].name);
})();
