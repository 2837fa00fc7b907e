// Keeps the facts of the server by key, and the feed. Reads them from a stream of server-sent events.

const KEPT = 1000; // as many as the server keeps
const TOKEN = "helios-token";

export const items = new Map();
export const feed = [];
export let connection = "connecting";
const listeners = new Set();
let changed = new Set();
let scheduled = false;

export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** Moves the token out of the address, since the browser's history would keep it. */
export function takeToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (!match) return;
  sessionStorage.setItem(TOKEN, decodeURIComponent(match[1]));
  history.replaceState(null, "", "#/");
}

export function listen(listener) {
  listeners.add(listener);
}

export function group(prefix) {
  return [...items].filter(([key]) => key.startsWith(prefix)).map(([, value]) => value);
}

function notify(keys) {
  for (const key of keys) changed.add(key);
  if (scheduled) return;
  scheduled = true;
  // Not requestAnimationFrame, which does not run while the page is hidden: the changes would pile up.
  setTimeout(() => {
    const changedKeys = changed;
    changed = new Set();
    scheduled = false;
    for (const listener of listeners) listener(changedKeys);
  }, 50);
}

function setConnection(state) {
  if (connection === state) return;
  connection = state;
  notify(["connection"]);
}

function headers() {
  return token() ? { Authorization: `Bearer ${token()}` } : {};
}

/** Returns the answer of the server as JSON, or null without one. If the lake cannot be read, it has `what` and `fix`. */
export async function ask(path, parameters = {}) {
  try {
    const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { headers: headers() });
    return answer.ok || answer.status === 502 ? await answer.json() : null;
  } catch {
    return null;
  }
}

export async function post(path) {
  return fetch(path, { method: "POST", headers: headers() });
}

function applyEvent(name, data, first) {
  if (name === "end") {
    setConnection("ended");
    return;
  }
  const keys = [];
  if (first) {
    items.clear();
    feed.length = 0;
    keys.push("feed");
  }
  for (const [key, value] of Object.entries(data.set)) {
    items.set(key, value);
    keys.push(key);
  }
  for (const key of data.drop) {
    items.delete(key);
    keys.push(key);
  }
  if (data.new.length) {
    feed.push(...data.new);
    if (feed.length > KEPT) feed.splice(0, feed.length - KEPT);
    keys.push("feed");
  }
  notify(keys);
}

async function read() {
  const answer = await fetch("events", { headers: headers() });
  if (answer.status === 401) return "locked";
  if (!answer.ok) return "lost";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let first = true;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return connection === "ended" ? "ended" : "lost";
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (!fields.event) continue;
      applyEvent(fields.event, JSON.parse(fields.data), first);
      if (fields.event !== "end") setConnection("live");
      first = false;
    }
  }
}

/** Follows the server, and connects again after the connection was lost. */
export async function follow() {
  for (let pause = 1; ; pause = Math.min(pause * 2, 10)) {
    let end = "lost";
    try {
      if (connection === "live") pause = 1;
      end = await read();
    } catch {
      end = connection === "ended" ? "ended" : "lost";
    }
    if (connection === "live") pause = 1;
    setConnection(end);
    if (end === "locked") return;
    await new Promise((resolve) => setTimeout(resolve, pause * 1000));
  }
}
