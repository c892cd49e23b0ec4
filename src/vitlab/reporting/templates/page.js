"use strict";
// Figures are drawn when they are near the viewport, with the colours of the page.

const places = [...document.querySelectorAll(".plot")];
const root = document.documentElement;
const white = { ink: "#1b1f24", paper: "#ffffff" };

// Models have other colours in the dark theme: those of the light theme are replaced in the data of a figure.

const listed = (name) => (document.body.dataset[name] || "").split(" ").filter((each) => each);
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",");
const palette = listed("colours").map((light, i) => [light, listed("darkColours")[i]]);

function isDark() {
  const theme = root.dataset.theme || "auto";
  return theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
}

function figureOf(place, dark = false) {
  let text = document.getElementById(`${place.id}-data`).textContent;
  for (const [light, other] of dark ? palette : []) {
    text = text.replaceAll(light, other).replaceAll(`rgba(${rgb(light)},`, `rgba(${rgb(other)},`);
  }
  const figure = JSON.parse(text);
  const { ink } = dark ? colours() : white;
  for (const trace of figure.data.filter((each) => each.type === "bar" && each.error_y)) trace.error_y.color = ink;
  for (const bars of figure.data.flatMap((trace) => [trace.error_x, trace.error_y])) {
    if (bars && bars.array) bars.array = bars.array.map((half) => half ?? NaN); // plotly draws null as an error of 0
  }
  return figure;
}

function scenesOf(layout) {
  return Object.keys(layout).filter((key) => key.startsWith("scene"));
}

function colours() {
  const style = getComputedStyle(root);
  return { ink: style.getPropertyValue("--ink").trim(), paper: style.getPropertyValue("--paper").trim() };
}

function inked(layout) {
  const { ink, paper } = colours();
  const label = { ...layout.hoverlabel, bgcolor: paper, font: { color: ink }, bordercolor: ink };
  const bar = { color: ink, activecolor: ink, bgcolor: "rgba(0,0,0,0)" };
  return { ...layout, font: { ...layout.font, color: ink }, hoverlabel: label, modebar: bar };
}

function draw(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  const { data, layout } = figureOf(place, isDark());
  const reset = { name: "reset", title: "Reset (Escape)", icon: Plotly.Icons.home, click: restore };
  Plotly.newPlot(place, data, inked({ ...layout, autosize: true }), { responsive: true, displayModeBar: "hover", displaylogo: false, modeBarButtons: [[reset]] });
}

function restore(place) {
  delete place.dataset.drawn;
  delete place.dataset.step;
  draw(place);
}

let printed = 0; // the width of the figures while the page is printed

function recolour() {
  for (const place of places.filter((each) => each.dataset.drawn)) {
    const layout = inked({ ...place.layout, autosize: !printed });
    if (printed) layout.width = printed;
    else delete layout.width;
    Plotly.react(place, figureOf(place, isDark()).data, layout);
  }
}

const near = new IntersectionObserver(
  (seen) => seen.filter((entry) => entry.isIntersecting).forEach((entry) => {
    near.unobserve(entry.target);
    draw(entry.target);
  }),
  { rootMargin: "1200px" },
);
places.forEach((place) => near.observe(place));

// Keys: left and right move between points and show their values, or rotate a 3-D plot; Escape resets.

const spoken = document.createElement("p");
spoken.className = "spoken";
spoken.setAttribute("aria-live", "polite");
document.body.append(spoken);

function along(trace, letter, i, layout) { // the coordinate of a cell of a matrix; categories are numbered
  const list = trace[letter];
  const axis = layout[(trace[`${letter}axis`] || letter).replace(letter, `${letter}axis`)];
  if (!list) return (trace[`${letter}0`] ?? 0) + i * (trace[`d${letter}`] ?? 1);
  return typeof list[i] === "number" && axis?.type !== "category" ? list[i] : i;
}

function cellSteps(trace, layout) {
  return trace.z.flatMap((row, j) =>
    row.map((_, i) => ({ xval: along(trace, "x", i, layout), yval: along(trace, "y", j, layout) })));
}

function stepsOf(place) {
  return place.data.flatMap((trace, curveNumber) => {
    if (trace.hoverinfo === "skip" || trace.visible === "legendonly") return [];
    const subplot = trace.r ? trace.subplot || "polar" : `${trace.xaxis || "x"}${trace.yaxis || "y"}`;
    const points = trace.z
      ? cellSteps(trace, place.layout)
      : (trace.r || trace.y).flatMap((value, i) => (missing(value) ? [] : [{ pointNumber: i }]));
    return points.map((point) => ({ curveNumber, subplot, ...point }));
  });
}

function moveBetweenPoints(place, by) {
  const steps = stepsOf(place);
  if (!steps.length) return;
  const from = Number(place.dataset.step ?? (by > 0 ? -1 : 0));
  place.dataset.step = (from + by + steps.length) % steps.length;
  const { subplot, ...point } = steps[place.dataset.step];
  Plotly.Fx.hover(place, [point], subplot);
  setTimeout(() => { // plotly delays the hover label if keys are pressed fast
    spoken.textContent = [...place.querySelectorAll(".hoverlayer text")].map((text) => text.textContent).join(" ");
  }, 100);
}

function rotate(place, by) {
  const [cos, sin] = [Math.cos(by * Math.PI / 12), Math.sin(by * Math.PI / 12)];
  const turned = scenesOf(place.layout).map((key) => {
    const { x, y, z } = place.layout[key].camera?.eye ?? { x: 1.25, y: 1.25, z: 1.25 };
    return [`${key}.camera.eye`, { x: x * cos - y * sin, y: x * sin + y * cos, z }];
  });
  Plotly.relayout(place, Object.fromEntries(turned));
}

places.forEach((place) => place.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.target !== place || (!by && event.key !== "Escape")) return;
  event.preventDefault();
  draw(place);
  if (!by) restore(place);
  else if (scenesOf(place.layout).length) rotate(place, by);
  else moveBetweenPoints(place, by);
}));

// Folds: an open one widens its card. Its summary stays in place, and the figures of the card get the new width.

for (const fold of document.querySelectorAll(".card details.more")) {
  const summary = fold.querySelector("summary");
  summary.addEventListener("click", (event) => {
    event.preventDefault(); // opened here, so that nothing scrolls between both positions
    const before = summary.getBoundingClientRect().top;
    fold.open = !fold.open;
    scrollBy(0, summary.getBoundingClientRect().top - before);
  });
  fold.addEventListener("toggle", () => {
    if (printed) return;
    for (const place of fold.closest(".card").querySelectorAll(".plot[data-drawn]")) {
      if (place.checkVisibility()) Plotly.Plots.resize(place);
    }
  });
}

// Theme: that of the system, light, dark.

const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");
if (button) button.addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
  root.dataset.theme = next;
  button.textContent = `Theme: ${next}`;
  recolour();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolour());

// Print: all figures in the light theme, with the width of the sheet.

const sheet = 680; // A4 between margins of 15 mm
let before = "auto";
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("main details:not([open])")];
  unfolded.forEach((fold) => { fold.open = true; });
  before = root.dataset.theme || "auto";
  root.dataset.theme = "light";
  places.forEach(draw);
  printed = sheet;
  recolour();
});
addEventListener("afterprint", () => {
  unfolded.forEach((fold) => { fold.open = false; });
  root.dataset.theme = before;
  printed = 0;
  recolour();
});

// SVG: on a white background, with the finding as the title.

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
  for (const key of place.dataset.drawn ? scenesOf(layout) : []) layout[key].camera = place.layout[key].camera; // keeps the current rotation
  const width = Math.max(640, place.clientWidth);
  const title = wrapped(place.dataset.title, width / 9);
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

// Navigation: the menu is a fold in a narrow window; a link into a fold opens it; the section in view is marked.

const menu = document.querySelector(".menu");
const narrow = matchMedia("(max-width: 999px)");
const fit = () => { if (menu) menu.open = !narrow.matches; };
narrow.addEventListener("change", fit);
fit();

const links = new Map([...document.querySelectorAll(".side nav li a")].map((link) => [link.getAttribute("href").slice(1), link]));
for (const link of links.values()) link.addEventListener("click", fit);
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((each) => each.isIntersecting)) {
    for (const [id, link] of links) {
      if (id === entry.target.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  }
}, { rootMargin: "-20% 0px -70% 0px" });
for (const part of document.querySelectorAll(".lead, #summary, .card")) seen.observe(part);

// Scrolling: the right edge of a table or figure fades while more of it is to the right.

const scrolled = [...document.querySelectorAll(".scroll")];
const mark = (place) => place.classList.toggle("cut", place.scrollWidth - place.clientWidth - place.scrollLeft > 4);
const sized = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target.closest(".scroll"))));
for (const place of scrolled) {
  place.addEventListener("scroll", () => mark(place), { passive: true });
  sized.observe(place);
  if (place.firstElementChild) sized.observe(place.firstElementChild);
}
