// The state of the page in the fragment of its address: written after each change, read on load.

const whole = (text, count) => {
  if (!/^\d{1,6}$/.test(text) || Number(text) >= count) throw new Error();
  return Number(text);
};
const parts = (text) => (text ? text.split("_") : []);
const writeQuery = (query) => (query.prefix === undefined ? `${query.row}.${query.column}` : `p${query.prefix}`);
const readPair = (text, first, second) => {
  const [a, b, ...rest] = text.split(".");
  if (rest.length) throw new Error();
  return [whole(a, first), whole(b, second)];
};
const PLACES = ["head", "attn", "mlp", "block"];

function readAblation(text, models) {
  const [model, layer, at, head] = text.split(".");
  if (!PLACES.includes(at) || (at === "head") !== (head !== undefined)) throw new Error();
  return { model: whole(model, models), ablation: { layer: whole(layer, 10000), at, ...(at === "head" ? { head: whole(head, 10000) } : {}) } };
}

export function write({ image, corruption, severity, view, ablations, overlay }) {
  const text = new URLSearchParams({ image });
  const put = (key, value) => { if (value) text.set(key, value); };
  if (severity) { put("corruption", corruption); put("severity", String(severity)); }
  put("hidden", [...view.hidden].sort((a, b) => a - b).join("_"));
  put("panels", view.panels.map((panel) => `${panel.model}.${panel.condition}`).join("_"));
  put("query", view.panels.map((panel) => writeQuery(panel.query)).join("_"));
  if (view.panels.some((panel) => panel.pinned)) put("pin", view.panels.map(({ pinned }) => (pinned ? `${pinned.layer}.${pinned.head}` : "-")).join("_"));
  put("ablate", ablations.models.flatMap((_, model) => ablations.of(model).map(({ layer, at, head }) => [model, layer, at, ...(at === "head" ? [head] : [])].join("."))).join("_"));
  if (overlay.state.method) {
    put("overlay", overlay.state.method);
    put("layer", String(overlay.state.layer));
    if (overlay.state.method === "gradient") put("class", overlay.state.target);
  }
  put("options", [...(view.common ? ["common"] : []), ...(view.difference ? ["difference"] : []), ...(view.locked ? [] : ["unlocked"])].join("_"));
  return text.toString();
}

// Returns the state, and the keys whose values are invalid and ignored.
export function read(fragment, start, names) {
  const text = new URLSearchParams(fragment.replace(/^#/, "")), ignored = [], [rows, columns] = start.grid;
  const take = (key, parse, otherwise) => {
    if (!text.has(key)) return otherwise;
    try {
      return parse(text.get(key));
    } catch {
      ignored.push(key);
      return otherwise;
    }
  };
  const among = (known) => (value) => {
    if (!known.includes(value)) throw new Error();
    return value;
  };
  const query = (value) => {
    if (value.startsWith("p")) return { prefix: whole(value.slice(1), 1000) };
    const [row, column] = readPair(value, rows, columns);
    return { row, column };
  };
  const pin = (value) => {
    if (value === "-") return null;
    const [layer, head] = readPair(value, 10000, 10000);
    return { layer, head };
  };
  const state = {
    image: take("image", among(names), null),
    corruption: take("corruption", among(Object.values(start.corruptions).flat()), ""),
    severity: take("severity", (value) => whole(value, 6), 0),
    hidden: take("hidden", (value) => parts(value).map((each) => whole(each, rows * columns)), []),
    panels: take("panels", (value) => parts(value).map((each) => readPair(each, start.models.length, 2)), null),
    queries: take("query", (value) => parts(value).map(query), []),
    pins: take("pin", (value) => parts(value).map(pin), []),
    ablations: take("ablate", (value) => parts(value).map((each) => readAblation(each, start.models.length)), []),
    overlay: { method: take("overlay", among(["rollout", "gradient"]), ""), layer: take("layer", (value) => whole(value, 10000), undefined), target: text.get("class") || "" },
    options: take("options", (value) => parts(value).map(among(["common", "difference", "unlocked"])), []),
  };
  return { state, ignored };
}
