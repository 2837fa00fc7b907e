// The pages. Each builds its elements once, and updates those whose facts have changed.

import { Table, batchLink, behind, bytes, drained, facts, h, moment, pipelineLink, plural, rate, scroll, seconds, section, setText, tableLink, tone, whole } from "./dom.js";
import { drawGraph } from "./graph.js";
import { Plot } from "./plot.js";
import { ask, feed, group, items, token } from "./store.js";
import { legend, timeline } from "./timeline.js";

const RECENT = 50, PAGE = 100;
const byName = (a, b) => a.name.localeCompare(b.name);
const mode = () => items.get("run")?.mode;
const links = (names) => names.map((name, n) => [n ? ", " : "", h("a", { href: pipelineLink(name), text: name })]);

function problemsOf(pipelines) {
  const failed = pipelines.filter((p) => p.problem).map((p) => h("div", { class: "problem" },
    h("a", { href: pipelineLink(p.name), text: p.name }), ": ", p.problem.code && h("code", { text: `error[${p.problem.code}] ` }), p.problem.where && h("code", { text: `${p.problem.where}: ` }),
    h("strong", { text: p.problem.what }), p.problem.fix && h("p", { text: `Fix: ${p.problem.fix}` })));
  const lake = (items.get("run")?.problems ?? []).map((text) => h("p", { class: "problem", text }));
  return [...failed, ...lake];
}

class Problems {
  constructor() {
    this.list = h("div");
    this.element = h("section", { class: "bad", hidden: true }, h("h2", { text: "Errors" }), this.list);
  }

  update(pipelines) {
    const found = problemsOf(pipelines);
    const text = found.map((e) => e.textContent).join("\n");
    this.element.hidden = !found.length;
    if (this.text !== text) this.list.replaceChildren(...found);
    this.text = text;
  }
}

const BATCHES = [
  { name: "time", cell: (e) => moment(e.at) },
  { name: "pipeline", cell: (e) => (e.pipeline ? { text: e.pipeline, href: pipelineLink(e.pipeline) } : e.table) },
  { name: "event", cell: (e) => ({ text: e.kind === "batch" && e.batch !== null ? `batch ${e.batch}` : e.kind === "batch" ? "commit" : e.kind, href: batchLink(e.table, e.snapshot) }) },
  { name: "rows", number: true, cell: (e) => (e.kind === "batch" ? whole(e.rows) : "") },
  { name: "files", number: true, cell: (e) => (e.kind === "batch" ? whole(e.files) : "") },
  { name: "size", number: true, cell: (e) => (e.bytes ? bytes(e.bytes) : "") },
  { name: "rejected", number: true, cell: (e) => (e.rejected ? whole(e.rejected) : "") },
  { name: "late", number: true, cell: (e) => (e.late ? whole(e.late) : "") },
  { name: "plan", number: true, cell: (e) => (e.writing === null ? "" : seconds(Math.max(0, e.seconds - e.writing - e.committing))) },
  { name: "read and write", number: true, cell: (e) => seconds(e.writing) },
  { name: "commit", number: true, cell: (e) => seconds(e.committing) },
  { name: "total", number: true, cell: (e) => seconds(e.seconds) },
  { name: "message", text: true, cell: (e) => e.message },
];

const latest = (entries, count) => entries.slice(-count).reverse();

export class Overview {
  title = "Pipelines";

  constructor() {
    this.problems = new Problems();
    this.graph = scroll("Graph");
    this.graph.classList.add("low");
    this.table = new Table("Pipelines", [
      { name: "pipeline", cell: (p) => ({ text: p.name, href: pipelineLink(p.name) }) },
      { name: "state", cell: (p) => ({ text: p.state, tone: tone(p.state) }) },
      { name: "rows/s", number: true, cell: (p) => rate(p.rate) },
      { name: "rows", number: true, cell: (p) => whole(p.rows) },
      { name: "batches", number: true, cell: (p) => whole(p.batches) },
      { name: "rejected", number: true, cell: (p) => (p.rejected ? whole(p.rejected) : "") },
      { name: "behind", cell: (p) => behind(p.behind) },
      { name: "drained", cell: (p) => drained(p.behind) },
      { name: "last commit", cell: (p) => ({ text: moment(p.committed), href: batchLink(p.target, p.snapshot) }) },
      { name: "message", text: true, cell: (p) => [p.audit === null ? "" : `batch ${p.audit} waits for its audit`, p.message, ...p.notes].filter(Boolean).join("; ") },
    ], (p) => p.name);
    this.element = [this.problems.element, h("h1", { class: "unseen", text: this.title }), section("Graph", this.graph), section("All pipelines", this.table.element)];
  }

  update(changed) {
    const pipelines = group("pipeline/").sort(byName);
    const graph = items.get("graph");
    if (graph && (changed.has("graph") || !this.drawn)) {
      const text = JSON.stringify(graph);
      if (text !== this.text) {
        this.drawn = drawGraph(graph);
        this.graph.replaceChildren(this.drawn.element);
      }
      this.text = text;
    }
    if (!graph) this.graph.replaceChildren(h("p", { class: "quiet", text: "The script is compiled, and Spark starts." }));
    this.drawn?.show(items);
    this.problems.update(pipelines);
    this.table.update(pipelines);
  }
}

export class Batches {
  title = "Batches";

  constructor() {
    this.minutes = h("select", { onchange: () => this.draw() }, [5, 15, 60].map((n) => h("option", { value: n, text: `${n} minutes` })));
    this.minutes.value = "15";
    this.lanes = scroll("Timeline");
    this.table = new Table("Latest batches", BATCHES, (e) => e.number);
    this.audits = h("div");
    this.upkeep = new Table("Maintenance", [
      { name: "time", cell: (e) => moment(e.at) },
      { name: "pipeline", cell: (e) => (e.pipeline ? { text: e.pipeline, href: pipelineLink(e.pipeline) } : e.table) },
      { name: "took", number: true, cell: (e) => seconds(e.seconds) },
      { name: "message", text: true, cell: (e) => e.message },
    ], (e) => e.number);
    this.element = [
      h("h1", { class: "unseen", text: this.title }),
      h("section", {}, h("div", { class: "row between" }, h("h2", { text: "Timeline" }), h("label", {}, "Last ", this.minutes)), legend(), this.lanes),
      h("div", { class: "half" }, section("Audits that wait", this.audits), section("Maintenance", this.upkeep.element)),
      section("Latest batches", this.table.element),
    ];
    this.timer = setInterval(() => this.draw(), 2000);
  }

  close() {
    clearInterval(this.timer);
  }

  draw() {
    if (document.hidden) return;
    const wide = this.lanes.clientWidth - 4;
    this.lanes.replaceChildren(timeline(feed, Number(this.minutes.value), Date.now(), wide));
  }

  update(changed) {
    if (changed.has("feed") || !this.shown) this.draw();
    this.shown = true;
    this.table.update(latest(feed, RECENT));
    this.upkeep.update(latest(feed.filter((e) => e.kind === "maintained"), 20));
    const waiting = group("pipeline/").filter((p) => p.audit !== null);
    const text = waiting.map((p) => `${p.name} ${p.audit}`).join();
    if (this.text === text) return;
    this.text = text;
    this.audits.replaceChildren(waiting.length
      ? h("ul", { class: "plain" }, waiting.map((p) => h("li", {}, h("a", { href: pipelineLink(p.name), text: p.name }), `: batch ${p.audit} has not passed its audit; main of ${p.target} does not show it.`)))
      : h("p", { class: "quiet", text: "None." }));
  }
}

export class Tables {
  title = "Tables";

  constructor() {
    this.table = new Table("Tables", [
      { name: "table", cell: (t) => ({ text: t.name, href: tableLink(t.name) }) },
      { name: "rows", number: true, cell: (t) => whole(t.rows) },
      { name: "files", number: true, cell: (t) => whole(t.files) },
      { name: "small files", number: true, cell: (t) => whole(t.small) },
      { name: "delete files", number: true, cell: (t) => (t.deletes ? whole(t.deletes) : "") },
      { name: "size", number: true, cell: (t) => bytes(t.bytes) },
      { name: "snapshots", number: true, cell: (t) => whole(t.snapshots) },
      { name: "format", cell: (t) => `v${t.format}` },
      { name: "schema changes", number: true, cell: (t) => (t.changed ? whole(t.changed) : "") },
      { name: "last commit", cell: (t) => moment(t.committed) },
      { name: "message", text: true, cell: (t) => [t.quarantine ? "rejected rows" : "", t.advice].filter(Boolean).join("; ") },
    ], (t) => t.name);
    this.element = [h("h1", { class: "unseen", text: this.title }), section("All tables", this.table.element)];
  }

  update() {
    this.table.update(group("table/").sort(byName));
  }
}

const COMMITS = [
  { name: "time", cell: (c) => moment(c.at) },
  { name: "commit", cell: (c) => ({ text: c.batch === null ? c.operation : `batch ${c.batch}`, href: batchLink(c.table, c.snapshot) }) },
  { name: "pipeline", cell: (c) => (c.pipeline ? { text: c.pipeline, href: pipelineLink(c.pipeline) } : "another writer") },
  { name: "operation", cell: (c) => c.operation },
  { name: "added", number: true, cell: (c) => `${c.exact ? "" : "~"}${whole(c.added)}` },
  { name: "removed", number: true, cell: (c) => (c.removed ? `${c.exact ? "" : "~"}${whole(c.removed)}` : "") },
  { name: "moved", number: true, cell: (c) => (c.moved ? whole(c.moved) : "") },
  { name: "files", number: true, cell: (c) => whole(c.files) },
  { name: "size", number: true, cell: (c) => bytes(c.bytes) },
];

/** The list of a table's commits, loaded page by page. */
class History {
  constructor(table) {
    this.table = table;
    this.rows = [];
    this.list = new Table(`Commits of ${table}`, COMMITS, (c) => c.snapshot);
    this.count = h("p", { class: "quiet" });
    this.more = h("button", { type: "button", text: "Older commits", hidden: true, onclick: () => this.load() });
    this.element = h("div", {}, this.list.element, h("div", { class: "row" }, this.count, this.more));
  }

  /** Shows the newest commits, unless the user has loaded older ones, which would move. */
  follow(committed) {
    if (this.committed === committed || this.rows.length > PAGE) return;
    this.committed = committed;
    this.load(true);
  }

  async load(fromNewest = false) {
    const before = fromNewest ? "" : (this.rows.at(-1)?.snapshot ?? "");
    const found = await ask("api/commits", { table: this.table, before, count: PAGE });
    this.rows = fromNewest ? (found?.commits ?? []) : [...this.rows, ...(found?.commits ?? [])];
    this.list.update(this.rows);
    setText(this.count, found ? `${whole(this.rows.length)} of ${plural(found.all, "commit")} that the table retains` : "The table has not been read yet.");
    this.more.hidden = !found || this.rows.length >= found.all;
  }
}

const PLOTS = [
  ["rows", "Rows a second", rate], ["bytes", "Written a second", bytes], ["writing", "Reading and writing", (v) => seconds(v / 1000)],
  ["committing", "Commit", (v) => seconds(v / 1000)], ["behind", "Age of what waits", seconds], ["rejected", "Rejected rows a second", rate],
];

export class Pipeline {
  constructor(name) {
    this.name = name;
    this.title = name;
    this.facts = h("div");
    this.problems = new Problems();
    this.plots = PLOTS.map(([field, title, shown]) => [field, new Plot(title, shown)]);
    this.figures = section("Metrics of the last hour", h("div", { class: "plots" }, this.plots.map(([, plot]) => plot.element)));
    this.figures.hidden = mode() !== "run";
    this.table = new Table("Latest batches", BATCHES.filter((c) => c.name !== "pipeline"), (e) => e.number);
    this.history = h("div");
    this.element = [this.problems.element, h("section", {}, h("h1", { text: name }), this.facts), this.figures,
      section("Latest batches", this.table.element), section("Commits", this.history)];
    this.timer = setInterval(() => this.look(), 10000);
    this.look();
  }

  close() {
    clearInterval(this.timer);
  }

  async look() {
    if (mode() !== "run" || document.hidden) return;
    const series = await ask("api/series", { pipeline: this.name });
    if (series?.at.length) for (const [field, plot] of this.plots) plot.update(series.at, series[field]);
  }

  update() {
    const p = items.get(`pipeline/${this.name}`);
    if (!p) {
      this.facts.replaceChildren(h("p", { class: "quiet", text: "There is no such pipeline." }));
      return;
    }
    this.figures.hidden = mode() !== "run";
    this.problems.update([p]);
    const text = JSON.stringify(p);
    if (text !== this.text) {
      this.facts.replaceChildren(facts([
        ["state", h("span", { class: `state ${tone(p.state)}`, text: p.state })], ["table", h("a", { href: tableLink(p.target), text: p.target })],
        ["batches", whole(p.batches)], [mode() === "run" ? "rows" : "rows of the last commit", whole(p.rows)], ["rejected", p.rejected ? whole(p.rejected) : ""],
        ["late", p.late ? whole(p.late) : ""], ["rows a second", rate(p.rate)], ["behind", behind(p.behind)], ["drained", drained(p.behind)],
        ["last commit", moment(p.committed)], ["audit", p.audit === null ? "" : `batch ${p.audit} has not passed it`],
        ["maintenance", p.declared ?? ""], ["message", [p.message, ...p.notes].filter(Boolean).join("; ")],
      ]));
    }
    this.text = text;
    this.table.update(latest(feed.filter((e) => e.pipeline === this.name), RECENT));
    if (!this.commits && items.has(`table/${p.target}`)) {
      this.commits = new History(p.target);
      this.history.replaceChildren(this.commits.element);
    } else if (!this.commits) this.history.replaceChildren(h("p", { class: "quiet", text: "Its table has not been read yet, or there are several." }));
    this.commits?.follow(items.get(`table/${p.target}`)?.committed);
  }
}

export class TablePage {
  constructor(name) {
    this.name = name;
    this.title = name;
    this.body = h("div");
    this.commits = new History(name);
    this.element = [h("section", {}, h("h1", { text: name }), this.body), section("Commits", this.commits.element)];
  }

  update() {
    const committed = items.get(`table/${this.name}`)?.committed ?? null;
    if (this.shown === committed) return;
    this.shown = committed;
    this.load();
    this.commits.follow(committed);
  }

  async load() {
    const page = await ask("api/table", { name: this.name });
    if (!page || page.what) {
      this.body.replaceChildren(h("p", { class: "quiet", text: page?.what ?? "The table has not been read yet, or there is no such table." }));
      return;
    }
    const t = page.facts, grown = page.growth;
    const plots = [["rows", "Rows", whole], ["files", "Files", whole], ["bytes", "Size", bytes]].map(([field, title, shown]) => {
      const plot = new Plot(title, shown);
      plot.update(grown.at, grown[field]);
      return plot.element;
    });
    const refs = [...Object.entries(page.branches), ...Object.entries(page.tags)].map(([name, id]) => `${name} at ${id}`);
    this.body.replaceChildren(
      facts([["rows", whole(t.rows)], ["files", whole(t.files)], ["small files", t.small === null ? "" : whole(t.small)], ["delete files", t.deletes ? whole(t.deletes) : ""],
        ["size", bytes(t.bytes)], ["snapshots", whole(t.snapshots)], ["format", `v${t.format}`], ["pipelines", h("span", {}, links(t.pipelines))],
        ["branches and tags", refs.join(", ")], ["last compaction", moment(page.compacted)], ["history", t.advice ?? ""]]),
      h("h2", { text: "Growth" }), h("div", { class: "plots" }, plots),
      h("h2", { text: "Schema changes" }),
      page.schemas.length ? h("ul", { class: "plain" }, page.schemas.map((c) => h("li", { text: `${c.at ? moment(c.at) : "not committed yet"}: ${c.changes.join(", ") || "no change of columns"}` }))) : h("p", { class: "quiet", text: "None in the metadata." }),
      h("h2", { text: "Columns" }), h("p", { text: page.columns.map((c) => `${c.name} ${c.type}`).join(", ") }),
    );
  }
}

export class Batch {
  constructor(table, snapshot) {
    this.where = { table, snapshot };
    this.title = `Snapshot ${snapshot}`;
    this.heading = h("h1", { text: `${table}, snapshot ${snapshot}` });
    this.body = h("div", {}, h("p", { class: "quiet", text: "Loading." }));
    this.rejects = h("div");
    this.element = [h("section", {}, this.heading, this.body), section("Expectations and rejected rows", this.rejects)];
    this.load();
  }

  update() {}

  async load() {
    const page = await ask("api/batch", this.where);
    if (!page || page.what) {
      this.body.replaceChildren(h("p", { class: "quiet", text: page?.what ?? "The table does not have this snapshot any more, or has not been read yet." }));
      return;
    }
    const feedEntry = feed.find((e) => e.snapshot === page.snapshot && e.seconds !== null);
    setText(this.heading, `${page.pipeline ?? "another writer"}, ${page.batch === null ? page.operation : `batch ${page.batch}`}`);
    const near = (at, text) => at && h("a", { href: batchLink(page.table, at), text });
    const rows = (n) => `${page.exact ? "" : "about "}${whole(n)}`;
    this.body.replaceChildren(
      facts([["table", h("a", { href: tableLink(page.table), text: page.table })], ["snapshot", page.snapshot], ["committed", moment(page.at)], ["operation", page.operation],
        ["rows added", rows(page.added)], ["rows removed", page.removed ? rows(page.removed) : ""], ["rows moved", page.moved ? whole(page.moved) : ""],
        ["files", whole(page.files)], ["size", bytes(page.bytes)], ["rejected", feedEntry?.rejected ? whole(feedEntry.rejected) : ""], ["late", feedEntry?.late ? whole(feedEntry.late) : ""],
        ["took", feedEntry ? seconds(feedEntry.seconds) : ""], ["plan", feedEntry?.writing != null ? seconds(Math.max(0, feedEntry.seconds - feedEntry.writing - feedEntry.committing)) : ""],
        ["read and write", feedEntry?.writing != null ? seconds(feedEntry.writing) : ""], ["commit", feedEntry?.committing != null ? seconds(feedEntry.committing) : ""], ["helios", page.version ?? ""]]),
      h("h2", { text: "Read" }),
      page.read.length ? h("ul", { class: "plain" }, page.read.map((r) => h("li", { text: r.text ? `${r.source}: ${r.text}` : r.source }))) : h("p", { class: "quiet", text: "Not recorded." }),
      h("h2", { text: "Steps" }),
      page.steps ? h("pre", { text: page.steps.join("\n") || "none" }) : h("p", { class: "quiet", text: "No checkpoint has the plan of this commit any more." }),
      h("div", { class: "row" }, near(page.older, "Previous batch"), near(page.newer, "Next batch")),
    );
    this.judge(page, feedEntry);
  }

  async judge(page, feedEntry) {
    const found = await ask("api/rejects", this.where);
    const groups = (found?.quarantines ?? []).flatMap((q) => q.groups.map((g) => ({ ...g, table: q.table })));
    const rows = (found?.quarantines ?? []).flatMap((q) => q.rows);
    const kept = groups.reduce((sum, g) => sum + g.rows, 0);
    const counted = (step) => groups.filter((g) => g.step === step).reduce((sum, g) => sum + g.rows, 0);
    const outcome = (e) => {
      if (e.on_fail === "quarantine") return counted(e.step) ? `${plural(counted(e.step), "row")} failed` : "all rows passed";
      if (e.on_fail === "drop") return feedEntry ? (feedEntry.rejected > kept ? `${plural(feedEntry.rejected - kept, "row")} of the batch dropped in all` : "all rows passed") : "the number of failing rows is not recorded";
      return "all rows passed";
    };
    const lines = [
      ...page.expectations.map((e) => [e.step, outcome(e)]),
      ...Object.entries(page.audits).map(([name, condition]) => [`audit ${name}: ${condition}`, "passed, as main has the batch"]),
    ];
    const table = (head, body) => scroll(head[0], h("table", {}, h("thead", {}, h("tr", {}, head.map((t) => h("th", { scope: "col", text: t })))),
      h("tbody", {}, body.map((cells) => h("tr", {}, cells.map((text) => h("td", { class: "text", text })))))));
    this.rejects.replaceChildren(...[
      found?.what && h("p", { class: "bad-text", text: found.what }),
      lines.length ? table(["expectation", "outcome"], lines) : h("p", { class: "quiet", text: page.steps ? "The steps have no expectation." : "The steps are not known." }),
      groups.length ? table(["rejected by", "reason", "rows", "quarantine"], groups.map((g) => [g.step || "the target", g.reason, whole(g.rows), g.table])) : null,
      rows.length ? [h("h3", { text: "Some of the rejected rows" }), rows.map((r) => [h("p", { text: r.reason }), h("pre", { text: r.payload ?? "" })])] : null,
      groups.length && !rows.length && !token() ? h("p", { class: "quiet", text: "The rows themselves need the token: open the address that the command has printed." }) : null,
    ].flat(Infinity).filter(Boolean));
  }
}
