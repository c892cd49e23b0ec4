"use strict";
// A figure as CSV: one row per point of each trace, with its panel and the titles of its axes.

function read(text) {
  const shown = String(text).replace(/<br>/g, " ").replace(/<sub>/g, "_").replace(/<\/?[a-z]+>/g, "");
  return shown.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
}

function missing(value) {
  return value === null || value === undefined || value === "" || Number.isNaN(value);
}

function cell(value) {
  if (missing(value)) return "";
  if (typeof value === "number") return String(value);
  const text = read(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; // a spreadsheet would evaluate it as a formula
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// The place of a trace: the title of its panel and the titles of the panel's axes.

function panelOf(layout, across = [0, 1], up = [0, 1]) {
  const near = (one, other) => Math.abs(one - other) < 1e-4;
  const above = (layout.annotations || []).find(({ x, y, xref, yref, yanchor }) =>
    xref === "paper" && yref === "paper" && yanchor === "bottom" && near(x, (across[0] + across[1]) / 2) && near(y, up[1]));
  return above && above.text;
}

function axisTitle(layout, letter, own) {
  const all = Object.keys(layout).filter((key) => key.startsWith(`${letter}axis`));
  const titles = [own, ...all].map((key) => layout[key]?.title?.text); // panels may share the title of one
  return titles.find((title) => title !== undefined);
}

function placeOf(trace, layout) {
  const colours = (trace.colorbar || layout[trace.coloraxis]?.colorbar)?.title?.text;
  if (/3d|surface/.test(trace.type)) {
    const { domain = {}, ...scene } = layout[trace.scene || "scene"] || {};
    const [x, y, z] = ["xaxis", "yaxis", "zaxis"].map((key) => scene[key]?.title?.text);
    return { panel: panelOf(layout, domain.x, domain.y), "x axis": x, "y axis": y, "z axis": z };
  }
  if (trace.r) {
    const { domain = {}, radialaxis } = layout[trace.subplot || "polar"] || {};
    return { panel: panelOf(layout, domain.x, domain.y), "x axis": "angle, degrees", "y axis": radialaxis?.title?.text };
  }
  const [x, y] = [(trace.xaxis || "x").replace("x", "xaxis"), (trace.yaxis || "y").replace("y", "yaxis")];
  const several = Object.keys(layout).filter((key) => key.startsWith("xaxis")).length > 1;
  const panel = panelOf(layout, layout[x]?.domain, layout[y]?.domain) || (several ? trace.xaxis || "x" : undefined);
  return { panel, "x axis": axisTitle(layout, "x", x), "y axis": axisTitle(layout, "y", y), "z axis": colours };
}

// Other data of a point is named as in its hover text: `head %{customdata[1]}`.

function notesOf(trace, field, said) {
  if (missing(said)) return {};
  const names = [...(trace.hovertemplate || "").matchAll(new RegExp(`([^\\s,:]+) %\\{${field}`, "g"))];
  return Object.fromEntries([said].flat().map((each, k) => [names[k] ? names[k][1] : "point", each]));
}

function cellsOf(trace, place) { // of a matrix; tiles of a mosaic have rows and columns instead of coordinates
  const at = (list, i, j) => (Array.isArray(list[j]) ? list[j][i] : list[i]);
  return trace.z.flatMap((row, j) => row.map((z, i) => ({
    ...place,
    ...(trace.x ? { x: at(trace.x, i, j) } : { "x axis": "column", x: i + 1 }),
    ...(trace.y ? { y: Array.isArray(trace.y[j]) ? trace.y[j][i] : trace.y[j] } : { "y axis": "row", y: j + 1 }),
    z,
    ...notesOf(trace, "text", trace.text?.[j]?.[i]),
  })));
}

function bandOf(trace, place) { // forward along the upper edge, back along the lower; bands without a name are not data
  const length = trace.name ? trace.x.length / 2 : 0;
  return Array.from({ length }, (_, i) => ({ ...place, x: trace.x[i], low: trace.y[2 * length - 1 - i], high: trace.y[i] }));
}

function dotsOf(trace, place) {
  const [xs, ys] = [trace.theta || trace.x, trace.r || trace.y || []];
  const ends = (bars, i) => [bars?.arrayminus?.[i] ?? bars?.array?.[i], bars?.array?.[i]];
  const dots = ys.map((y, i) => {
    const x = xs ? xs[i] : i;
    const text = Array.isArray(trace.text) && trace.text[i] !== x ? trace.text[i] : null;
    const notes = { ...notesOf(trace, "customdata", trace.customdata?.[i]), ...notesOf(trace, "text", text) };
    const { [place["x axis"]]: unmoved = x, ...others } = notes; // dots are shifted so that they do not overlap
    const [[left, right], [below, above]] = [ends(trace.error_x, i), ends(trace.error_y, i)];
    const errors = { "x error -": left, "x error +": right, "error -": below, "error +": above };
    return { ...place, x: unmoved, y, z: trace.z?.[i], ...errors, ...others };
  });
  return dots.filter(({ x, y }) => !missing(x) || !missing(y)); // traces for the legend only
}

function pointsOf(trace, index, layout) {
  const place = { series: trace.name || `series ${index + 1}`, ...placeOf(trace, layout) };
  if (Array.isArray(trace.z) && Array.isArray(trace.z[0])) return cellsOf(trace, place);
  if (trace.fill === "toself") return bandOf(trace, place);
  const mirrored = layout[(trace.xaxis || "x").replace("x", "xaxis")]?.tickprefix === "−"; // absolute values on a logarithmic axis
  return dotsOf(trace, place).map((dot) => (mirrored ? { ...dot, x: -dot.x } : dot));
}

function csv({ data, layout }) {
  const points = data.flatMap((trace, index) => pointsOf(trace, index, layout));
  const order = ["panel", "series", "x axis", "x", "y axis", "y", "z axis", "z", "low", "high"];
  const columns = [...new Set([...order, ...points.flatMap((point) => Object.keys(point))])];
  const used = columns.filter((column) => points.some((point) => !missing(point[column])));
  return [used, ...points.map((point) => used.map((column) => point[column]))].map((row) => row.map(cell).join(",")).join("\r\n");
}
