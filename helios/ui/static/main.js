// The frame of the page: its routes, header, theme, and the button that stops a run.

import { plural, rate, setText, tone } from "./dom.js";
import { connection, follow, group, items, listen, post, takeToken, token } from "./store.js";
import { Batch, Batches, Overview, Pipeline, TablePage, Tables } from "./views.js";

const $ = (id) => document.getElementById(id);
const THEMES = ["auto", "light", "dark"];
let view = null;

const ROUTES = [
  [/^#?\/?$/, () => new Overview()],
  [/^#\/batches$/, () => new Batches()],
  [/^#\/tables$/, () => new Tables()],
  [/^#\/pipeline\/([^/]+)$/, (name) => new Pipeline(name)],
  [/^#\/table\/([^/]+)$/, (name) => new TablePage(name)],
  [/^#\/batch\/([^/]+)\/(\d+)$/, (table, snapshot) => new Batch(table, snapshot)],
];

function go(focus) {
  if (location.hash === "#main") {
    $("main").focus();
    return;
  }
  view?.close?.();
  const [route, make] = ROUTES.find(([pattern]) => pattern.test(location.hash)) ?? ROUTES[0];
  view = make(...(route.exec(location.hash) ?? []).slice(1).map(decodeURIComponent));
  $("main").replaceChildren(...view.element);
  view.update(new Set(["graph", "feed"]));
  document.title = `${view.title} · Helios`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === (location.hash || "#/")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (focus) {
    scrollTo(0, 0);
    $("main").focus({ preventScroll: true });
  }
}

const CONNECTION_TEXTS = {
  connecting: "connecting", live: "live", lost: "no connection: the page shows the last known state", ended: "ended",
  locked: "open the address that the command has printed: it has the token",
};

function header() {
  const run = items.get("run");
  const pipelines = group("pipeline/");
  setText($("connection"), connection === "live" && run?.state === "reading" ? "reading the lake" : CONNECTION_TEXTS[connection]);
  $("connection").className = `state ${connection === "live" ? "good" : tone(connection === "lost" ? "away" : "")}`;
  const states = new Map();
  for (const p of pipelines) states.set(p.state, (states.get(p.state) ?? 0) + 1);
  const speed = pipelines.reduce((sum, p) => sum + (p.rate ?? 0), 0);
  const counts = [...states].map(([state, n]) => `${n} ${state}`).join(", ");
  setText($("summary"), run ? `${run.title}: ${plural(pipelines.length, "pipeline")}${counts ? ` (${counts})` : ""}${run.mode === "run" ? `, ${rate(speed)} rows/s` : ""}` : "");
  const stop = $("stop");
  stop.hidden = run?.mode !== "run";
  stop.disabled = !run?.stops || !token() || run.state === "stopping" || connection !== "live";
  setText(stop, run?.state === "stopping" ? "Stopping" : "Drain, then stop");
  stop.title = token() ? "" : "Open the address that the run has printed: it has the token.";
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("helios-theme", theme);
  setText($("theme"), `Theme: ${theme}`);
}

async function stopRun() {
  $("confirm-yes").disabled = true;
  const answer = await post("api/stop").catch(() => null);
  if (answer?.status === 202) $("confirm").close();
  else setText($("confirm-text"), answer?.status === 401 ? "The token is not that of this run: open the address that it has printed." : "The run did not accept the request: it may have ended.");
  $("confirm-yes").disabled = false;
}

takeToken();
setTheme(THEMES.includes(localStorage.getItem("helios-theme")) ? localStorage.getItem("helios-theme") : "auto");
$("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(localStorage.getItem("helios-theme")) + 1) % THEMES.length]));
$("stop").addEventListener("click", () => $("confirm").showModal());
$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm-yes").addEventListener("click", stopRun);
addEventListener("hashchange", () => {
  takeToken();
  go(true);
});
listen((changed) => {
  header();
  view?.update(changed);
});
go(false);
header();
follow();
