// The graph of the script: boxes in columns from the sources to the tables, each with the state of its pipelines.

import { behind, pipelineLink, plural, rate, s, setText, tone } from "./dom.js";

const BOX_WIDTH = 208, BOX_HEIGHT = 58, COLUMN_GAP = 56, ROW_GAP = 14, PADDING = 8, MAX_SIGNS = 27;
const MIN_SCALE = 0.7; // a graph shrinks to this share of its width before it scrolls

/** Splits a label such as Iceberg.source(shop.orders).incremental(poll=2 s) into the name, and the kind with its options. */
function parts(label) {
  const [first] = label.split("\n");
  const match = /^(\w+)\.(?:source|sink)\(([^,)]+)(?:, ([^)]*))?\)(?:\.(.*))?$/.exec(first);
  if (!match) return [first, ""];
  const [, kind, name, form, how] = match;
  const end = name.length > MAX_SIGNS && name.includes("/") ? `…${name.slice(-MAX_SIGNS + 1)}` : name; // the end of a path is the more telling part
  return [end, [kind, form, how].filter(Boolean).join(", ")];
}

const short = (text) => (text.length > MAX_SIGNS ? `${text.slice(0, MAX_SIGNS - 1)}…` : text);

/** The edges without those that close a cycle, which a table that is written from itself has. */
function forward(nodes, edges) {
  const out = new Map(nodes.map((n) => [n.id, []]));
  for (const edge of edges) out.get(edge.start).push(edge);
  const state = new Map(); // a box is open while the boxes after it are visited, then done
  const kept = [];
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of out.get(id)) {
      if (state.get(edge.end) === "open") continue;
      kept.push(edge);
      if (!state.has(edge.end)) visit(edge.end);
    }
    state.set(id, "done");
  };
  for (const node of nodes) if (!state.has(node.id)) visit(node.id);
  return kept;
}

/** The column of each box: one to the right of all boxes that lead to it. */
function columns(nodes, edges) {
  const column = new Map(nodes.map((n) => [n.id, 0]));
  for (let moved = true; moved; ) {
    moved = false;
    for (const { start, end } of edges) {
      if (column.get(end) > column.get(start)) continue;
      column.set(end, column.get(start) + 1);
      moved = true;
    }
  }
  return column;
}

/** The position of each box, by id: at the height of the boxes that lead to it, without covering another box. */
export function placeBoxes(graph) {
  const edges = forward(graph.nodes, graph.edges);
  const column = columns(graph.nodes, edges);
  const before = new Map(graph.nodes.map((n) => [n.id, []]));
  for (const edge of edges) before.get(edge.end).push(edge.start);
  const last = Math.max(0, ...column.values());
  const places = new Map();
  for (let at = 0; at <= last; at++) {
    const here = graph.nodes.filter((n) => column.get(n.id) === at);
    const wanted = new Map(here.map((n, index) => {
      const near = before.get(n.id).filter((id) => places.has(id)).map((id) => places.get(id).y);
      return [n.id, near.length ? near.reduce((a, b) => a + b, 0) / near.length : at ? 0 : index * (BOX_HEIGHT + ROW_GAP)];
    }));
    here.sort((a, b) => wanted.get(a.id) - wanted.get(b.id));
    let free = 0;
    for (const node of here) {
      const y = Math.max(free, wanted.get(node.id));
      places.set(node.id, { x: at * (BOX_WIDTH + COLUMN_GAP), y });
      free = y + BOX_HEIGHT + ROW_GAP;
    }
  }
  return places;
}

function arrow(from, to, edge) {
  const x1 = from.x + BOX_WIDTH, y1 = from.y + BOX_HEIGHT / 2, x2 = to.x, y2 = to.y + BOX_HEIGHT / 2;
  const back = x2 < x1;
  const bend = back ? 60 : Math.max(24, (x2 - x1) / 2);
  const path = s("path", { class: `edge${edge.dashed ? " dashed" : ""}`, d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2 - 6},${y2}` });
  const head = s("path", { class: "arrow", d: `M${x2},${y2} l-8,-4 v8 z` });
  const label = edge.label && s("text", { class: "quiet", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, "text-anchor": "middle", text: edge.label });
  return [path, head, label];
}

/** Draws a graph. Returns its element, and a function that shows the current state of the pipelines. */
export function drawGraph(graph) {
  const places = placeBoxes(graph);
  const width = Math.max(BOX_WIDTH, ...[...places.values()].map((p) => p.x + BOX_WIDTH)) + 2 * PADDING;
  const height = Math.max(BOX_HEIGHT, ...[...places.values()].map((p) => p.y + BOX_HEIGHT)) + 2 * PADDING;
  const boxes = [];
  const drawn = graph.nodes.map((node) => {
    const { x, y } = places.get(node.id);
    const [name, kind] = node.kind === "step" ? [node.label, ""] : parts(node.label);
    const state = s("text", { class: "quiet", x: x + (node.kind === "sink" ? 24 : 12), y: y + 35, text: node.kind === "source" ? short(kind) : "" });
    const lag = s("text", { class: "quiet", x: x + 12, y: y + 51 });
    const title = s("title", { text: node.label });
    const mark = node.kind === "sink" && s("circle", { class: "mark", cx: x + 15, cy: y + 31, r: 4 });
    const box = s("g", { class: `box ${node.kind}` }, title,
      s("rect", { x, y, width: BOX_WIDTH, height: BOX_HEIGHT, rx: node.kind === "step" ? 4 : 12 }),
      s("text", { x: x + 12, y: y + (node.kind === "step" ? 33 : 18), text: short(name) }), mark, state, lag);
    boxes.push({ node, box, state, lag, title });
    const own = node.kind === "sink" ? node.pipelines : node.pipelines.length === 1 ? node.pipelines : [];
    if (node.kind === "step" || !own.length) return box;
    return s("a", { href: pipelineLink(own[0]) }, box);
  });
  const root = s("svg", { width, height, viewBox: `${-PADDING} ${-PADDING} ${width} ${height}`, role: "group", "aria-label": "Graph of the pipelines" },
    graph.edges.map((edge) => arrow(places.get(edge.start), places.get(edge.end), edge)), drawn);
  root.style.width = `max(${Math.round(width * MIN_SCALE)}px, min(100%, ${width}px))`;
  root.style.height = "auto";
  return { element: root, show: (pipelines) => boxes.forEach((box) => showBox(box, pipelines)) };
}

const WORST = ["failed", "away", "starting", "waiting", "running"];

function showBox({ node, box, state, lag, title }, pipelines) {
  const own = node.pipelines.map((name) => pipelines.get(`pipeline/${name}`)).filter(Boolean);
  if (node.kind === "step" || !own.length) return;
  const worst = [...own].sort((a, b) => rank(a) - rank(b))[0];
  if (node.kind === "sink") {
    box.setAttribute("class", `box sink ${tone(worst.state)}`);
    const speed = worst.rate ? `, ${rate(worst.rate)} rows/s` : worst.rows ? `, ${plural(worst.rows, "row")}` : "";
    setText(state, `${worst.state}${speed}`);
    setText(lag, worst.problem ? short(worst.problem.what) : worst.audit !== null ? `batch ${worst.audit} waits for its audit` : "");
  } else {
    const lags = own.map((p) => p.behind).filter(Boolean);
    const most = lags.sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0))[0];
    setText(lag, most ? short(behind(most)) : "");
  }
  const problem = worst.problem ? `\n${worst.problem.what}${worst.problem.fix ? `\nFix: ${worst.problem.fix}` : ""}` : "";
  setText(title, `${node.label}\n${worst.state}${problem}`);
}

const rank = (p) => (WORST.includes(p.state) ? WORST.indexOf(p.state) : WORST.length);
