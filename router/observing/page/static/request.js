// A single request: where its time went, its batch, and what would have helped.

import { h, put } from "./dom.js";
import { number } from "./figures.js";
import { read } from "./live.js";
import { requestTable } from "./model.js";

const PHASES = [["queue", "queue_ms", "--faint"], ["fill", "fill_ms", "--accent-2"], ["to the worker", "input_ms", "--doubtful"], ["compute", "compute_ms", "--accent"], ["back", "output_ms", "--good"]];

export class RequestView {
  constructor(live, name) {
    this.name = name;
    this.title = name ? `Request ${name}` : "Requests";
    this.found = h("div", { "aria-live": "polite" });
    this.table = requestTable(live, "Latest requests that were late, refused or failed", true);
    this.none = h("p", { class: "small" }, "None of the requests that are kept was late, refused or failed.");
    this.none.hidden = this.table.box.hidden = true;
    this.box = h("div", {}, this.found, h("h2", {}, "Late, refused or failed"), h("p", { class: "small" }, h("code", {}, "penstock explain --requests"), " lists the same."), this.none, this.table.box);
    this.timer = setInterval(() => this.list(), 3000);
    this.list();
    if (name) this.ask();
  }

  async list() {
    try {
      const { requests } = await read("v2/requests?limit=200");
      this.none.hidden = requests.length > 0;
      this.table.box.hidden = !this.none.hidden;
      this.table.set(requests);
    } catch { /* the state line says it */ }
  }

  async ask() {
    try {
      put(this.found, shown(await read(`v2/requests/${encodeURIComponent(this.name)}?words=true`)));
    } catch (error) {
      put(this.found, h("h2", {}, `Request ${this.name}`), h("p", { class: "bad" }, error.said || String(error)));
    }
  }

  update() {}

  end() { clearInterval(this.timer); }
}

function shown(request) {
  const phases = PHASES.map(([title, key, color]) => [title, request[key], color]).filter(([, took]) => took > 0);
  const total = phases.reduce((sum, [, took]) => sum + took, 0);
  return [h("h2", {}, `Request ${request.name || request.number}`),
    total ? [h("div", { class: "phases", role: "img", "aria-label": phases.map(([title, took]) => `${title} ${number(took)} ms`).join(", ") },
      phases.map(([title, took, color]) => h("i", { title: `${title} ${number(took)} ms`, style: `flex:${took} 0 0;background:var(${color})` }))),
    h("p", { class: "key small" }, phases.map(([title, took, color]) => [h("i", { style: `background:var(${color})` }), `${title} ${number(took)} ms  `]))] : null,
    h("div", { class: "panel" }, h("pre", {}, request.sentences.join("\n")))];
}
