"use strict";
// Figures are drawn when they come near the window, and take their colours from the page.

const places = [...document.querySelectorAll(".plot")];
const root = document.documentElement;
const settings = { responsive: true, displayModeBar: false, displaylogo: false };
const white = { ink: "#1b1f24", paper: "#ffffff" };

function figureOf(place) {
  return JSON.parse(document.getElementById(`${place.id}-data`).textContent);
}

function colours() {
  const style = getComputedStyle(root);
  return { ink: style.getPropertyValue("--ink").trim(), paper: style.getPropertyValue("--paper").trim() };
}

function inked({ ink, paper }) {
  return { "font.color": ink, "hoverlabel.bgcolor": paper, "hoverlabel.font.color": ink, "hoverlabel.bordercolor": ink };
}

function draw(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  const { data, layout } = figureOf(place);
  const { ink, paper } = colours();
  layout.font = { ...layout.font, color: ink };
  layout.hoverlabel = { ...layout.hoverlabel, bgcolor: paper, font: { color: ink }, bordercolor: ink };
  layout.autosize = true;
  Plotly.newPlot(place, data, layout, settings);
}

function recolour(change = {}) {
  for (const place of places) {
    if (place.dataset.drawn) Plotly.relayout(place, { ...inked(colours()), ...change });
  }
}

const near = new IntersectionObserver(
  (seen) => seen.filter((entry) => entry.isIntersecting).forEach((entry) => {
    near.unobserve(entry.target);
    draw(entry.target);
  }),
  { rootMargin: "600px" },
);
places.forEach((place) => near.observe(place));

// Theme: as the system says, light, dark.

const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");
if (button) button.addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
  root.dataset.theme = next;
  button.textContent = `Theme: ${next}`;
  recolour();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolour());

// Print: all figures, in dark ink, as wide as the sheet.

const sheet = 680; // A4 between margins of 15 mm
let before = "auto";
addEventListener("beforeprint", () => {
  before = root.dataset.theme || "auto";
  root.dataset.theme = "light";
  places.forEach(draw);
  recolour({ width: sheet });
});
addEventListener("afterprint", () => {
  root.dataset.theme = before;
  recolour({ width: null, autosize: true });
});

// Data: one row for each point of each trace.

function read(text) {
  return String(text ?? "").replace(/<br>/g, " ").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
}

function pointsOf(trace, index) {
  const name = read(trace.name) || (trace.fill ? "band" : `series ${index + 1}`);
  const at = (list, i, j) => (Array.isArray(list) ? (Array.isArray(list[j]) ? list[j][i] : list[i]) : i);
  if (Array.isArray(trace.z) && Array.isArray(trace.z[0])) {
    return trace.z.flatMap((row, j) => row.map((z, i) => {
      const y = Array.isArray(trace.y) ? (Array.isArray(trace.y[j]) ? trace.y[j][i] : trace.y[j]) : j;
      return [name, at(trace.x, i, j), y, z, null];
    }));
  }
  const length = Math.max(...["x", "y", "z"].map((axis) => (Array.isArray(trace[axis]) ? trace[axis].length : 0)));
  const errors = (trace.error_y && trace.error_y.array) || (trace.error_x && trace.error_x.array) || [];
  return Array.from({ length }, (_, i) => [
    name, at(trace.x, i), at(trace.y, i), Array.isArray(trace.z) ? trace.z[i] : null, errors[i] ?? null,
  ]);
}

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = read(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; // a spreadsheet would run it as a formula
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csv({ data, layout }) {
  const titled = (letter) => {
    const axis = layout[`${letter}axis`] || (layout.scene && layout.scene[`${letter}axis`]);
    const title = axis && axis.title && axis.title.text;
    return title ? `${letter} (${read(title)})` : letter;
  };
  const points = data.flatMap(pointsOf);
  const head = ["series", titled("x"), titled("y"), titled("z"), "error bar"];
  const used = head.map((_, column) => column < 3 || points.some((point) => point[column] !== null));
  return [head, ...points].map((row) => row.filter((_, column) => used[column]).map(cell).join(",")).join("\r\n");
}

// Image: a vector drawing for white paper, with the finding as its title.

function wrapped(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if ((lines.at(-1) + word).length > width) lines.push("");
    lines[lines.length - 1] += `${word} `;
  }
  const escaped = (line) => line.trim().replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  return lines.filter((line) => line).map(escaped);
}

async function svg(place) {
  const { data, layout } = figureOf(place);
  const width = Math.max(640, place.clientWidth);
  const title = wrapped(document.getElementById(`${place.id}-title`).textContent, width / 9);
  const room = 22 * title.length + 16;
  const height = (layout.height || 420) + room;
  layout.margin = { ...layout.margin, t: ((layout.margin && layout.margin.t) || 40) + room };
  layout.font = { ...layout.font, color: white.ink };
  layout.title = { text: title.join("<br>"), x: 0.02, xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { t: 14 }, font: { size: 16 } };
  Object.assign(layout, { width, height, paper_bgcolor: white.paper, plot_bgcolor: white.paper });
  const url = await Plotly.toImage({ data, layout }, { format: "svg", width, height });
  return decodeURIComponent(url.slice(url.indexOf(",") + 1));
}

function save(text, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

for (const pressed of document.querySelectorAll("[data-save]")) {
  const place = document.getElementById(pressed.dataset.of);
  const name = `${place.dataset.file}.${pressed.dataset.save}`;
  pressed.addEventListener("click", async () => {
    if (pressed.dataset.save === "csv") save(csv(figureOf(place)), "text/csv;charset=utf-8", name);
    else save(await svg(place), "image/svg+xml", name);
  });
}
