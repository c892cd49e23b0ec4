// Draw the view on a canvas and save it as a PNG file.
const { make, percent, points } = AttentionDrawing;

const SCALE = 2, PANEL = 560, GAP = 32, PICTURE = 240, LENS = 180, ENTROPY = 68, LINE = 20;
const FONT = "system-ui, sans-serif";

class Sheet {
  constructor(width, height, style) {
    this.canvas = make("canvas", { width: width * SCALE, height: height * SCALE });
    this.context = this.canvas.getContext("2d");
    this.context.scale(SCALE, SCALE);
    this.context.textBaseline = "top";
    this.ink = style.color;
    this.rect(0, 0, width, height, style.backgroundColor);
    this.accent = "#31688e";
  }

  rect(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }

  text(text, x, y, width, { size = 13, bold = false, right = false, faint = false } = {}) {
    const { context } = this;
    const weight = bold ? "600 " : "";
    for (let fitting = size; fitting >= Math.min(size, 9); fitting--) {  // smaller letters before text is cut
      context.font = `${weight}${fitting}px ${FONT}`;
      if (context.measureText(text).width <= width) break;
    }
    context.globalAlpha = faint ? 0.6 : 1;
    context.fillStyle = this.ink;
    let shown = text;
    while (shown.length > 1 && context.measureText(shown === text ? shown : `${shown}…`).width > width) shown = shown.slice(0, -1);
    if (shown !== text) shown += "…";
    context.fillText(shown, right ? x + width - context.measureText(shown).width : x, y);
    context.globalAlpha = 1;
  }

  // The texts in lines of a width; a text that is alone in its line and too long is cut.
  lines(texts, width, size) {
    this.context.font = `${size}px ${FONT}`;
    const fits = (line) => this.context.measureText(line).width <= width;
    return texts.reduce((lines, text) => {
      const longer = lines.length ? `${lines.at(-1)}; ${text}` : text;
      return fits(longer) ? [...lines.slice(0, -1), longer] : [...lines, text];
    }, []);
  }

  image(source, x, y, width, height, smooth, opacity = 1) {
    this.context.globalAlpha = opacity;
    this.context.imageSmoothingEnabled = smooth;
    this.context.drawImage(source, x, y, width, height);
    this.context.globalAlpha = 1;
  }
}

function drawPanel(sheet, panel, x, top) {
  const { source } = panel.view, { canvas, found } = panel, tall = (PICTURE * canvas.height) / canvas.width;
  const condition = source.conditions.length > 1 ? `, ${source.conditions[panel.condition]}` : "";
  sheet.text(`${source.models[panel.model]}${condition}`, x, top, PANEL, { size: 15, bold: true });
  sheet.image(canvas, x, top + 28, PICTURE, tall, true);
  const side = x + PICTURE + 16, wide = PANEL - PICTURE - 16;
  let y = top + 28;
  for (const line of panel.truth.children) { sheet.text([...line.childNodes].map((node) => node.textContent).join(" "), side, y, wide); y += LINE; }
  if (found.reference) { sheet.text(panel.reference.textContent, side, y, wide, { size: 12, faint: true }); y += LINE; }
  for (const { name, probability, before } of found.predictions) {
    sheet.text(name, side, y + 4, wide - 120);
    sheet.text(percent(probability) + (before === undefined ? "" : `  ${points(probability - before)}`), side + wide - 120, y + 4, 120, { right: true });
    sheet.rect(side, y + 21, wide * probability, 3, sheet.accent);
    y += 27;
  }
  let bottom = Math.max(y, top + 28 + tall) + 6;
  if (panel.caption.textContent) { sheet.text(panel.caption.textContent, x, bottom, PANEL, { size: 12 }); bottom += LINE; }
  return drawLayers(sheet, panel, x, bottom + 6);
}

function drawLayers(sheet, panel, x, top) {
  const room = PANEL - 28 - ENTROPY - LENS, heads = Math.max(1, ...panel.cells.map((cell) => cell.maps.length));
  const size = Math.max(20, Math.min(64, room / heads - 3)), columns = Math.max(1, Math.floor(room / (size + 3)));
  const heading = (text, left, width) => sheet.text(text, left, top, width, { size: 12, faint: true });
  heading("layer", x, 40);
  heading("heads", x + 44, room);
  heading("entropy", x + PANEL - LENS - ENTROPY + 8, ENTROPY - 8);
  if (panel.found.layers.some(({ lens }) => lens)) heading("logit lens", x + PANEL - LENS, LENS);
  let y = top + LINE;
  panel.cells.forEach((cell, i) => {
    const { lens } = panel.found.layers[i], middle = y + size / 2 - 8;
    sheet.text(String(i + 1), x, middle, 24);
    if (cell.strip.hidden) sheet.text(cell.why.textContent, x + 28, middle, room, { faint: true });
    else cell.maps.forEach((button, head) => {
      const left = x + 28 + (head % columns) * (size + 3), above = y + Math.floor(head / columns) * (size + 3);
      const ablated = button.classList.contains("av-ablated") || cell.row.classList.contains("av-without-block");
      sheet.image(button.firstChild, left, above, size, size, false, ablated ? 0.25 : 1);
      if (ablated) sheet.text("×", left + size / 2 - 8, above + size / 2 - 16, size, { size: 28, bold: true });
    });
    sheet.text(cell.entropy.textContent, x + PANEL - LENS - ENTROPY + 8, middle, ENTROPY - 8);
    if (lens) {
      sheet.text(lens[0].name, x + PANEL - LENS, middle, LENS - 60, { faint: true });
      sheet.text(percent(lens[0].probability), x + PANEL - 56, middle, 56, { right: true });
    }
    const lines = cell.strip.hidden ? 1 : Math.max(1, Math.ceil(cell.maps.length / columns));
    y += lines * (size + 3) + 6;
  });
  return y;
}

// A sheet with all panels side by side under a title of several texts; it is drawn twice, because the first time gives
// its height.
export function compose(view, title) {
  const style = getComputedStyle(document.body), width = view.panels.length * (PANEL + GAP) + GAP;
  const draw = (height) => {
    const sheet = new Sheet(width, height, style);
    const lines = sheet.lines(title, width - 2 * GAP, 14), top = 32 + LINE * lines.length;
    lines.forEach((line, i) => sheet.text(line, GAP, 20 + i * LINE, width - 2 * GAP, { size: 14, faint: true }));
    return { sheet, bottom: Math.max(...view.panels.map((panel, i) => drawPanel(sheet, panel, GAP + i * (PANEL + GAP), top))) };
  };
  return draw(draw(10).bottom + GAP).sheet.canvas;
}

export function savePng(view, title) {
  if (view.panels.some((panel) => !panel.rows)) return;
  compose(view, title).toBlob((blob) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: "vitlab-explore.png" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }, "image/png");
}
