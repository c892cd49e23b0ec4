// Drawing for the attention view: elements, numbers as text, colours, maps on a canvas. Used by reports and the explorer.
"use strict";

// A report may have several views, each with a copy of this file: the first one is used.
var AttentionDrawing = AttentionDrawing || (() => {
  // Viridis at ten points: readable without colour vision and in grey.
  const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
    [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]];
  // Blue for less, white for equal, orange for more: readable without colour vision.
  const DIVERGING = [[5, 48, 97], [67, 147, 195], [247, 247, 247], [214, 120, 44], [110, 45, 4]];

  const table = (stops) => Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((value, c) => Math.round(value + (stops[low + 1][c] - value) * (place - low)));
  });
  const SEQUENTIAL_COLOURS = table(VIRIDIS), DIVERGING_COLOURS = table(DIVERGING);

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function bytes(base64) {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  }

  const percent = (share) => (share >= 0.9995 ? "100 %" : `${(100 * share).toFixed(1)} %`);
  const signed = (value, digits) => `${value < 0 && Number(value.toFixed(digits)) !== 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
  const points = (share) => signed(100 * share, 1);
  const mean = (numbers) => numbers.reduce((sum, value) => sum + value, 0) / Math.max(1, numbers.length);
  const largest = (numbers) => numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

  // The colour of a value: from 0 to `most`, or from −`most` to `most` for differences.
  function colour(value, most, difference) {
    const share = most ? Math.max(-1, Math.min(1, value / most)) : 0;
    return difference ? DIVERGING_COLOURS[Math.round(127.5 * (share + 1))] : SEQUENTIAL_COLOURS[Math.round(255 * Math.max(0, share))];
  }

  // Draw one map, one pixel per key. As an overlay, small values are transparent.
  function paintMap(canvas, { values, grid: [rows, columns], difference }, most, overlay) {
    canvas.width = columns;
    canvas.height = rows;
    const image = new ImageData(columns, rows);
    for (let i = 0; i < rows * columns; i++) {
      const level = most ? Math.min(1, Math.abs(values[i]) / most) : 0;
      image.data.set(colour(values[i], most, difference), 4 * i);
      image.data[4 * i + 3] = !overlay ? 255 : difference ? Math.round(230 * level) : 70 + Math.round(153 * level);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  async function bitmap(picture) {
    if (typeof picture === "string") {
      const image = new Image();
      image.src = picture;
      await image.decode();
      return image;
    }
    const canvas = make("canvas", { width: picture.width, height: picture.height });
    const pixels = new ImageData(picture.width, picture.height);
    const rgb = bytes(picture.rgb);
    for (let i = 0; i < picture.width * picture.height; i++) {
      pixels.data.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
      pixels.data[4 * i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas;
  }

  return { make, bytes, percent, points, signed, mean, largest, colour, paintMap, bitmap };
})();
