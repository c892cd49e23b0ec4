// Predictions of a panel as elements: label and verdict, the most probable classes, the logit lens of a layer.
"use strict";

var AttentionPredictions = AttentionPredictions || (() => {
  const { make, percent, points } = AttentionDrawing;

  // The logit lens is faded if its distribution is nearly uniform: 1 − entropy / log(number of classes) is below this.
  const LEAST = 0.1, UNIFORM = `its distribution is nearly uniform (less than ${100 * LEAST} % of the largest information)`;
  const LENS = `the model's last norm and head applied to the output of this layer; faded where ${UNIFORM}`;

  function isLabel(entry, { label, label_index: index }) {
    return index === undefined ? Boolean(label) && entry.name === label : index !== null && entry.index === index;
  }

  function track(share) {
    const bar = make("span", { class: "av-bar" });
    bar.style.width = `${100 * share}%`;
    return make("span", { class: "av-track" }, bar);
  }

  // The label, the predicted class, and in words whether they agree.
  function verdict(found) {
    const { label, label_index: index, predictions: [first] } = found;
    const line = (what, text) => make("p", {}, make("span", { class: "av-what", text: what }), make("b", { text, title: text }));
    const lines = [...(label ? [line("label", label)] : []), ...(first ? [line("predicted", first.name)] : [])];
    if (!label || !first) return lines;
    if (index === null) return [...lines, make("p", { class: "av-verdict", text: "the label is not an output of this model" })];
    const right = isLabel(first, found);
    return [...lines, make("p", { class: `av-verdict ${right ? "av-right" : "av-wrong"}`, text: right ? "✓ right" : "✗ wrong" })];
  }

  // One class: probability, and the change from the condition that it is compared with.
  function prediction(entry, found) {
    const { name, probability, before } = entry, bar = track(probability);
    const tag = isLabel(entry, found) ? [make("span", { class: "av-tag", text: "label" })] : [];
    const parts = [make("span", { class: "av-class", title: name }, name), ...tag, make("span", { class: "av-number", text: percent(probability) })];
    if (before !== undefined) {
      const mark = make("span", { class: "av-before" });
      mark.style.left = `${100 * before}%`;
      bar.append(mark);
      parts.push(make("span", { class: "av-change", text: points(probability - before), title: `${found.reference}: ${percent(before)}` }));
    }
    return make("li", {}, make("div", { class: "av-line" }, ...parts), bar);
  }

  function lens(layer, found) {
    if (!layer.lens) return make("td", { class: "av-lens av-none", text: "–", title: layer.why_no_lens });
    const [first] = layer.lens, all = layer.lens.map(({ name, probability }) => `${name} ${percent(probability)}`);
    const faded = layer.information !== undefined && layer.information < LEAST;
    const same = found.predictions.length && first.name === found.predictions[0].name;
    if (layer.information !== undefined) all.push(`information ${percent(layer.information)} of its largest value`);
    if (faded) all.push(`faded: ${UNIFORM}`);
    return make("td", { class: `av-lens${faded ? " av-faded" : same ? " av-settled" : ""}`, title: all.join("\n") },
      make("span", { class: "av-class", text: first.name }), track(first.probability),
      make("span", { class: "av-number", text: percent(first.probability) }));
  }

  return { LENS, verdict, prediction, lens };
})();
