// What the server has said: facts by their keys, and the feed; read from a stream of server-sent events.

const KEPT = 1000; // as many as the server keeps
const TOKEN = "helios-token";

export const items = new Map();
export const feed = [];
export let connection = "connecting";
const listeners = new Set();
let changed = new Set();
let planned = false;

export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** Takes the token out of the address, where it would stay in the history. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(TOKEN, decodeURIComponent(found[1]));
  history.replaceState(null, "", "#/");
}

export function listen(listener) {
  listeners.add(listener);
}

export function group(prefix) {
  return [...items].filter(([key]) => key.startsWith(prefix)).map(([, value]) => value);
}

function tell(keys) {
  for (const key of keys) changed.add(key);
  if (planned) return;
  planned = true;
  // Not requestAnimationFrame: a hidden page would keep what it has not shown.
  setTimeout(() => {
    const told = changed;
    changed = new Set();
    planned = false;
    for (const listener of listeners) listener(told);
  }, 50);
}

function become(state) {
  if (connection === state) return;
  connection = state;
  tell(["connection"]);
}

function headers() {
  return token() ? { Authorization: `Bearer ${token()}` } : {};
}

/** The answer of the server as JSON; null where there is none. An error of the lake has `what` and `fix`. */
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

function take(name, data, first) {
  if (name === "end") {
    become("ended");
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
  tell(keys);
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
      take(fields.event, JSON.parse(fields.data), first);
      if (fields.event !== "end") become("live");
      first = false;
    }
  }
}

/** Follows the server, and comes back to it when it was away. */
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
    become(end);
    if (end === "locked") return;
    await new Promise((resolve) => setTimeout(resolve, pause * 1000));
  }
}
