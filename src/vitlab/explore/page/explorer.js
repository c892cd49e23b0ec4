// The live page: the sidebar selects the input and the ablations, the view requests data from the server.
import { Ablations } from "./ablations.js";
import { read, write } from "./address.js";
import { CausalTrace } from "./causal.js";
import { Controls } from "./controls.js";
import { Overlay } from "./overlay.js";
import { Pictures } from "./pictures.js";
import { savePng } from "./png.js";
import { ask } from "./server.js";
import { openSidebar } from "./sidebar.js";

const by = (id) => document.getElementById(id);

function fail(text) {
  by("error").textContent = text;
  by("error").hidden = !text;
}

function later(wait, act) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(act, wait); };
}

async function open() {
  const start = await ask("api/start"), [rows, columns] = start.grid;
  const page = { image: "0", get corruption() { return controls.corruption; }, get severity() { return controls.severity; } };
  const condition = (model, which) => (which === 0 ? { model, image: page.image } : { model, image: page.image, corruption: page.corruption,
    severity: page.severity, hidden: [...view.hidden], ablations: ablations.of(model) });
  const view = new AttentionView(by("view"), {
    models: start.models,
    conditions: ["clean", "changed"],
    grid: start.grid,
    view: (model, which) => ask("api/view", condition(model, which)),
    rows: (model, which, query) => ask("api/rows", { ...condition(model, which),
      ...(query.prefix === undefined ? { y: (query.row + 0.5) / rows, x: (query.column + 0.5) / columns } : { prefix: query.prefix }) }),
    relevance: (model, which, method, target) => ask("api/relevance", { ...condition(model, which), method, target }),
  });
  const refresh = later(120, () => view.refresh(true));
  const controls = new Controls(start, view, refresh);
  const ablations = new Ablations(start.models, view);
  const overlay = new Overlay(Math.max(...start.layers), view);
  const pictures = new Pictures(start, choose, fail);
  const causal = new CausalTrace(start, view, (model) => condition(model, 1));
  Object.assign(page, { view, ablations, overlay });

  function choose(name) {
    page.image = name;
    pictures.mark(name);
    view.refresh(true);
  }

  function apply({ state, ignored }) {
    state.hidden.forEach((cell) => view.hidden.add(cell));
    controls.set(state);
    const lists = start.models.map((_, model) => state.ablations.filter((each) => each.model === model).map((each) => each.ablation));
    ablations.set(lists);
    overlay.set(state.overlay);
    view.panels.forEach((panel, i) => {
      if (state.panels && state.panels[i]) { panel.choose("model", state.panels[i][0]); panel.choose("condition", state.panels[i][1]); }
      panel.query = state.queries[i] || state.queries[0] || panel.query;
      panel.pinned = state.pins[i] || null;
    });
    Object.assign(view, { common: state.options.includes("common"), difference: state.options.includes("difference"), locked: !state.options.includes("unlocked") });
    view.drawOptions();
    choose(state.image || "0");
    return ignored.length ? `The address has invalid values, which are ignored: ${ignored.join(", ")}.` : "";
  }

  const remember = later(100, () => history.replaceState(null, "", `#${write(page)}`));
  view.onpaint = refresh;
  view.onchange = () => {
    overlay.offer(view.panels.flatMap((panel) => (panel.found ? panel.found.predictions.map(({ name }) => name) : [])));
    causal.check();
    remember();
  };
  let notice = "";
  view.onerror = (text) => { fail(text || notice); notice = ""; };
  notice = apply(read(location.hash, start, pictures.names));
  window.addEventListener("hashchange", () => location.reload());
  by("save").addEventListener("click", () => savePng(view, [view.status.textContent, controls.text, ...ablations.texts(), view.difference && "panel 2: maps minus those of panel 1"].filter(Boolean)));
  openSidebar();
}

open().catch((error) => fail(error.message));
