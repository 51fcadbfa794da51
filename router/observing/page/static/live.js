// The gateway's status as it changes. `parts` is all of it by name; `history` keeps the last minutes of totals.

import { between, SPAN_S } from "./figures.js";

export const HISTORY_S = 600;
const KEY = "penstock-key";

export class Live {
  constructor() {
    this.parts = {};
    this.events = [];
    this.history = new Map(); // by model: readings [{at, model}]
    this.series = { at: [], rate: [], goodput: [], kept: [] };
    this.byModel = new Map(); // by model: {at, rate, goodput, p50, p99}
    this.state = "connecting";
    this.heard = 0;
    this.listeners = new Set();
  }

  get models() {
    return Object.entries(this.parts).filter(([name]) => name.startsWith("model/")).map(([, part]) => part);
  }

  model(name) { return this.parts[`model/${name}`]; }

  /* What happened to a model in the last ten seconds. */
  now(name) {
    const readings = this.history.get(name);
    if (!readings || readings.length < 2) return null;
    const last = readings[readings.length - 1];
    let first = readings[0];
    for (const each of readings) if (last.at - each.at >= SPAN_S) first = each;
    if (last.at <= first.at) return null;
    return between(first.model, last.model, last.at - first.at, this.parts.gateway.bounds_us);
  }

  async run() {
    for (;;) {
      try {
        await this.listen();
        this.turn("the gateway has ended the stream");
      } catch (error) {
        this.turn(error.said || "no answer from the gateway");
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  async listen() {
    const response = await call("v2/live");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const line = rest.slice(0, end).split("\n").find((each) => each.startsWith("data: "));
        rest = rest.slice(end + 2);
        if (line) this.take(JSON.parse(line.slice(6)));
      }
    }
  }

  take(change) {
    const before = this.parts.gateway;
    if (change.whole) {
      this.parts = change.parts;
      this.events = change.events;
      if (before && before.uptime_s > change.parts.gateway.uptime_s) this.forget(); // another process
    } else {
      Object.assign(this.parts, change.parts);
      const again = new Set(change.events.map((each) => each.first));  // an event that came once more
      this.events = this.events.filter((each) => !again.has(each.first));
      this.events.push(...change.events);
      if (this.events.length > 500) this.events.splice(0, this.events.length - 500);
    }
    for (const name of change.gone) delete this.parts[name];
    this.remember();
    this.heard = performance.now();
    this.turn("live");
  }

  forget() {
    this.history.clear();
    this.byModel.clear();
    this.series = { at: [], rate: [], goodput: [], kept: [] };
  }

  remember() {
    const at = this.parts.gateway.unix_s;
    let rate = 0, goodput = 0, offered = 0, good = 0;
    const there = new Set();
    for (const model of this.models) {
      there.add(model.name);
      const readings = this.history.get(model.name) || this.history.set(model.name, []).get(model.name);
      readings.push({ at, model });
      while (readings.length > 2 && at - readings[1].at > SPAN_S) readings.shift();
      const now = this.now(model.name);
      if (!now) continue;
      rate += now.rate; goodput += now.goodput; offered += now.offered; good += now.good;
      const own = this.byModel.get(model.name) || this.byModel.set(model.name, { at: [], rate: [], goodput: [], p50: [], p99: [] }).get(model.name);
      append(own, { at, rate: now.rate, goodput: now.goodput, p50: now.p50 === null ? null : now.p50 / 1000, p99: now.p99 === null ? null : now.p99 / 1000 });
    }
    for (const name of this.history.keys()) if (!there.has(name)) { this.history.delete(name); this.byModel.delete(name); }
    append(this.series, { at, rate, goodput, kept: offered ? good / offered * 100 : null });
  }

  turn(state) {
    this.state = state;
    for (const each of this.listeners) each();
  }
}

function append(series, values) {
  for (const [name, value] of Object.entries(values)) series[name].push(value);
  while (series.at.length > HISTORY_S) for (const each of Object.values(series)) each.shift();
}

/* An answer of the gateway. Throws an error whose `said` is what the gateway says of it. */
export async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...(options.headers || {}), ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  let said = `${response.status} ${response.statusText}`;
  try {
    const body = await response.json();
    said = body.error || said;
  } catch { /* no JSON: the status says it */ }
  if (response.status === 401) await askForKey(said);
  const error = new Error(said);
  error.said = said;
  error.status = response.status;
  throw error;
}

export const read = async (path) => (await call(path)).json();

let asking = null;
function askForKey(why) {
  asking ||= new Promise((resolve) => {
    const dialog = document.getElementById("key");
    document.getElementById("key-why").textContent = why;
    dialog.addEventListener("close", () => {
      const text = document.getElementById("key-text");
      if (text.value) sessionStorage.setItem(KEY, text.value);
      text.value = "";
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
