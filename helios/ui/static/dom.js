// Makes elements, and formats numbers and times. Text is never parsed as HTML, because it comes from data.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function section(title, ...children) {
  return h("section", {}, h("h2", { text: title }), children);
}

/** A region that scrolls, also with the keyboard. */
export function scroll(label, ...children) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, children);
}

/** A table whose rows are updated in place, so that the focus and a selection stay. A column is {name, number, text, cell}. */
export class Table {
  constructor(label, columns, key) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.body = h("tbody");
    this.heads = columns.map((c) => h("th", { scope: "col", class: c.number && "number", text: c.name }));
    this.empty = h("p", { class: "quiet", text: "None." });
    this.scroller = scroll(label, h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body));
    this.element = h("div", {}, this.scroller, this.empty);
  }

  update(values) {
    const seen = new Set();
    this.empty.hidden = values.length > 0;
    this.scroller.hidden = !values.length;
    values.forEach((value, index) => {
      const key = this.key(value);
      seen.add(key);
      let row = this.rows.get(key);
      if (!row) {
        const cells = this.columns.map((c) => h("td", { class: c.number ? "number" : c.text ? "text" : null }));
        row = { element: h("tr", {}, cells), cells, shown: [] };
        this.rows.set(key, row);
      }
      this.columns.forEach((column, at) => this.fill(row, at, column.cell(value)));
      if (this.body.children[index] !== row.element) this.body.insertBefore(row.element, this.body.children[index] ?? null);
    });
    for (const [key, row] of this.rows) {
      if (seen.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    const rows = [...this.rows.values()];
    this.columns.forEach((_, at) => {
      const unused = !rows.some((row) => row.cells[at].textContent); // a column without values is hidden
      for (const cell of [this.heads[at], ...rows.map((row) => row.cells[at])]) if (cell.hidden !== unused) cell.hidden = unused;
    });
  }

  /** Sets a cell to `content`, which is text or {text, href, tone}. */
  fill(row, at, content) {
    const cell = content !== null && typeof content === "object" ? content : { text: content };
    const shown = JSON.stringify(cell);
    if (row.shown[at] === shown) return;
    row.shown[at] = shown;
    const text = cell.text ?? "";
    const link = row.cells[at].querySelector("a");
    if (link && cell.href) {
      setText(link, text);
      link.setAttribute("href", cell.href);
    } else if (cell.href) row.cells[at].replaceChildren(h("a", { href: cell.href, text }));
    else if (cell.tone) row.cells[at].replaceChildren(h("span", { class: `state ${cell.tone}`, text }));
    else row.cells[at].replaceChildren(text);
  }
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", {}, shown.map(([name, value]) => [h("dt", { text: name }), h("dd", {}, value)]));
}

// numbers and times

export const whole = (n) => (n === null || n === undefined ? "" : Math.round(n).toLocaleString("en"));
export const plural = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : noun.endsWith("ch") ? "es" : "s"}`;

export function rate(n) {
  if (n === null || n === undefined) return "";
  return n >= 10 || n === 0 ? whole(n) : n.toFixed(1);
}

export function bytes(n) {
  if (n === null || n === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) [n, unit] = [n / 1000, unit + 1];
  return `${unit && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export function seconds(n) {
  if (n === null || n === undefined) return "";
  if (n < 10) return `${n.toFixed(n < 1 ? 2 : 1)} s`;
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (n >= 2 * size) return `${Math.floor(n / size)} ${unit}`;
  return `${Math.round(n)} s`;
}

const twoDigits = (n) => String(n).padStart(2, "0");

export function clock(ms) {
  const at = new Date(ms);
  return `${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}:${twoDigits(at.getSeconds())}`;
}

export function moment(ms) {
  if (ms === null || ms === undefined) return "";
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${twoDigits(at.getMonth() + 1)}-${twoDigits(at.getDate())}`;
  return new Date().toDateString() === at.toDateString() ? clock(ms) : `${day} ${clock(ms)}`;
}

const TONES = { running: "good", finished: "good", failed: "bad-text", away: "warn", starting: "warn", waiting: "calm", stopped: "calm" };
export const tone = (state) => TONES[state] ?? "calm";

export function behind(b) {
  if (!b) return "";
  const parts = [];
  if (b.records) parts.push(plural(b.records, "record"));
  if (b.files) parts.push(`${plural(b.files, "file")}${b.bytes ? ` of ${bytes(b.bytes)}` : ""}`);
  if (b.snapshots && !b.files && !b.records) parts.push(plural(b.snapshots, "snapshot"));
  if (!parts.length) return "nothing waits";
  return `${parts.join(", ")}${b.seconds ? `, ${seconds(b.seconds)}` : ""}`;
}

export function drained(b) {
  if (!b || !(b.records || b.files || b.snapshots)) return "";
  if (b.drained !== null && b.drained !== undefined) return `in about ${seconds(b.drained)}`;
  return b.grows ? "grows" : "not at this rate";
}

export const pipelineLink = (name) => `#/pipeline/${encodeURIComponent(name)}`;
export const tableLink = (name) => `#/table/${encodeURIComponent(name)}`;
export const batchLink = (table, snapshot) => (table && snapshot ? `#/batch/${encodeURIComponent(table)}/${snapshot}` : null);
