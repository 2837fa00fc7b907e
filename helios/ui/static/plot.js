// Small plots of one line, with its largest and its last value.

import { clock, h, s, setText } from "./dom.js";

const WIDE = 300, HIGH = 64;

export class Plot {
  constructor(title, shown) {
    this.title = title;
    this.shown = shown;
    this.value = h("span", { class: "quiet" });
    this.svg = s("svg", { class: "plot", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
    this.range = h("span", { class: "quiet" });
    this.element = h("figure", {}, h("figcaption", {}, h("span", { text: title }), this.value), this.svg, this.range);
  }

  update(at, values) {
    const known = values.filter((v) => v !== null);
    const most = Math.max(0, ...known);
    const span = Math.max(1, at.at(-1) - at[0]);
    const point = (v, i) => `${(((at[i] - at[0]) / span) * WIDE).toFixed(1)},${(HIGH - 2 - (v / (most || 1)) * (HIGH - 6)).toFixed(1)}`;
    const points = values.flatMap((v, i) => (v === null ? [] : [point(v, i)])); // points without a value are skipped
    this.svg.replaceChildren(s("line", { x1: 0, x2: WIDE, y1: HIGH - 1, y2: HIGH - 1 }),
      s("polyline", { points: points.join(" ") }));
    const last = known.length ? this.shown(known.at(-1)) : "none yet";
    setText(this.value, last);
    setText(this.range, known.length > 1 ? `most ${this.shown(most)}, since ${clock(at[0])}` : "");
    this.svg.setAttribute("aria-label", `${this.title}: last ${last}${known.length > 1 ? `, most ${this.shown(most)}` : ""}`);
  }
}
