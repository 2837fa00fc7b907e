// Draws batches over time: a lane for each pipeline, and a bar with the phases of each batch.

import { batchLink, clock, h, plural, s, seconds } from "./dom.js";

const LANE = 20, TOP = 22, LABEL = 150;
export const PHASES = [["plan", "plan"], ["write", "read and write"], ["commit", "commit"], ["maintain", "maintain"], ["waiting", "waits"], ["failed", "failed"]];

export function legend() {
  const sign = (name) => s("svg", { width: 10, height: 10, "aria-hidden": "true" }, s("rect", { class: name, width: 10, height: 10 }));
  return h("div", { class: "legend" }, PHASES.map(([name, text]) => h("span", {}, sign(name), ` ${text}`)));
}

function phasesOf(entry) {
  if (entry.kind === "maintained") return [["maintain", entry.seconds ?? 0]];
  if (entry.kind === "waiting" || entry.kind === "failed") return [[entry.kind, 0]];
  if (entry.seconds === null) return [["commit", 0]];
  const [write, commit] = [entry.writing ?? 0, entry.committing ?? 0];
  return [["plan", Math.max(0, entry.seconds - write - commit)], ["write", write], ["commit", commit]];
}

/** Draws entries of the feed that ended in the last minutes, and returns the element. */
export function timeline(entries, minutes, now, wide) {
  const from = now - minutes * 60000;
  const shown = entries.filter((e) => e.at >= from && e.kind !== "resumed");
  const lanes = [...new Set(shown.map((e) => e.pipeline || e.table))].sort();
  const width = Math.max(360, wide), height = TOP + Math.max(1, lanes.length) * LANE + 4;
  const x = (ms) => LABEL + ((ms - from) / (now - from)) * (width - LABEL - 8);
  const steps = width < 640 ? 1 : 4;
  const ticks = Array.from({ length: steps + 1 }, (_, n) => from + ((now - from) * n) / steps);
  const root = s("svg", { class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${plural(shown.length, "event")} of the last ${minutes} minutes; the table below lists them` });
  root.append(...ticks.map((t) => s("line", { x1: x(t), x2: x(t), y1: TOP - 6, y2: height })));
  root.append(...ticks.map((t, n) => s("text", { class: "quiet", x: x(t), y: 12, "text-anchor": n === steps ? "end" : n ? "middle" : "start", text: clock(t) })));
  root.append(...lanes.map((name, n) => s("text", { x: 0, y: TOP + n * LANE + 14, text: name.length > 21 ? `…${name.slice(-20)}` : name }, s("title", { text: name }))));
  for (const entry of shown) {
    const y = TOP + lanes.indexOf(entry.pipeline || entry.table) * LANE + 3;
    const bar = s("g", { class: "bar" }, s("title", { text: entryText(entry) }));
    let start = entry.at - (entry.seconds ?? 0) * 1000;
    for (const [phase, length] of phasesOf(entry)) {
      const end = start + length * 1000;
      const left = Math.max(LABEL, x(start));
      bar.append(s("rect", { class: phase, x: left, y, width: Math.max(length || phasesOf(entry).length === 1 ? 2.5 : 0, x(end) - left), height: LANE - 6 }));
      start = end;
    }
    const link = batchLink(entry.table, entry.snapshot);
    if (link) bar.addEventListener("click", () => (location.hash = link));
    root.append(bar);
  }
  return root;
}

export function entryText(entry) {
  const took = entry.seconds === null ? "" : `, ${seconds(entry.seconds)}`;
  const what = entry.kind === "batch" ? `batch ${entry.batch}: ${plural(entry.rows, "row")}` : entry.kind === "skipped" ? `batch ${entry.batch}: in the table already` : entry.kind;
  return `${entry.pipeline || entry.table}, ${clock(entry.at)}: ${what}${took}${entry.message ? `; ${entry.message}` : ""}`;
}
