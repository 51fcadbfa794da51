// A model: its latency against its SLO, who answers, and why; the requests that were not answered in time.

import { h, put, Table, tile } from "./dom.js";
import { clock, ms, number, percent, rankOf } from "./figures.js";
import { histogram, Lines } from "./charts.js";
import { read } from "./live.js";
import { noticeList, versionOf } from "./overview.js";

export const requestTable = (live, label, withModel) => new Table(label, [
  { title: "at", cell: (row) => clock(row.arrived_unix_s), by: (row) => -row.arrived_unix_s },
  { title: "request", left: true, cell: (row) => h("a", { href: `#/request/${encodeURIComponent(row.name || row.number)}` }, row.name || String(row.number)) },
  ...(withModel ? [{ title: "model", left: true, cell: (row) => row.model, by: (row) => row.model }] : []),
  { title: "tenant", left: true, cell: (row) => row.tenant, by: (row) => row.tenant, spare: true },
  { title: "took ms", cell: (row) => number(row.latency_ms), by: (row) => -row.latency_ms },
  { title: "due ms", cell: (row) => number(row.due_ms), by: (row) => row.due_ms },
  { title: "ending", left: true, cell: (row) => live.parts.words?.[row.ending] || row.ending, by: (row) => row.ending },
], (row) => row.number);

export class ModelView {
  constructor(live, name) {
    this.live = live;
    this.name = name;
    this.title = name;
    this.tiles = { kept: tile("in time, last 10 s"), rate: tile("requests a second"), p50: tile("p50 ms"), p99: tile("p99 ms"), batch: tile("rows in a batch"), queue: tile("rows waiting") };
    this.latency = new Lines(`Latency of ${name} over the last minutes, in milliseconds`, [["p50", "--accent"], ["p99", "--accent-2"]], "ms");
    this.load = new Lines(`Requests a second for ${name}, and those in time`, [["asked", "--faint"], ["in time", "--accent"]], "/s");
    this.bars = h("div", { role: "img", "aria-label": "Histogram of latencies of the last ten seconds" });
    this.notices = h("div");
    this.words = h("pre");
    this.answers = h("div");
    this.endings = h("div");
    this.table = requestTable(live, `Latest requests of ${name} that were late, refused or failed`, false);
    this.none = h("p", { class: "small" }, "None of the requests that are kept was late, refused or failed.");
    this.heading = h("h2", {}, name);
    this.box = h("div", {},
      this.heading, h("div", { class: "tiles" }, Object.values(this.tiles).map((each) => each.box)), this.notices,
      h("div", { class: "columns" },
        h("section", {}, h("h2", {}, "Latency against its SLO"), h("div", { class: "panel" }, this.latency.box)),
        h("section", {}, h("h2", {}, "Latencies of the last 10 s"), h("div", { class: "panel" }, this.bars)),
        h("section", {}, h("h2", {}, "Load"), h("div", { class: "panel" }, this.load.box)),
        h("section", {}, h("h2", {}, "Answers of the last 10 s"), h("div", { class: "panel" }, this.answers, h("h2", {}, "Not in time"), this.endings))),
      h("h2", {}, "Late, refused or failed"), this.none, this.table.box,
      h("h2", {}, "Why it answers so"), h("p", { class: "small" }, h("code", {}, `penstock explain ${name}`), " says the same, since the start."), h("div", { class: "panel" }, this.words));
    this.timer = setInterval(() => this.ask(), 3000);
    this.ask();
  }

  async ask() {
    try {
      const [why, requests] = await Promise.all([read(`v2/models/${encodeURIComponent(this.name)}/explain?words=true`), read(`v2/requests?model=${encodeURIComponent(this.name)}&limit=50`)]);
      this.words.textContent = why.sentences.join("\n");
      this.none.hidden = requests.requests.length > 0;
      this.table.box.hidden = !this.none.hidden;
      this.table.set(requests.requests);
    } catch (error) {
      this.words.textContent = error.said || String(error);
    }
  }

  update() {
    const model = this.live.model(this.name), now = this.live.now(this.name);
    put(this.notices, model ? noticeList((this.live.parts.attention || []).filter((each) => each.model === this.name)) : h("p", { class: "bad" }, `The gateway serves no model ${this.name}.`));
    if (!model) return;
    put(this.heading, this.name, versionOf(model));
    if (!now) return;
    this.tiles.kept.set(percent(now.kept), rankOf(now.kept, model.objective));
    this.tiles.rate.set(number(now.rate));
    this.tiles.p50.set(ms(now.p50));
    this.tiles.p99.set(ms(now.p99), now.p99 > model.slo_us ? "bad" : "");
    this.tiles.batch.set(number(now.batch));
    this.tiles.queue.set(number(model.queue_rows));
    this.latency.level = model.slo_us / 1000;
    const own = this.live.byModel.get(this.name);
    this.latency.set([own.at, own.p50, own.p99]);
    this.load.set([own.at, own.rate, own.goodput]);
    histogram(this.bars, this.live.parts.gateway.bounds_us, now.counts, model.slo_us);
    put(this.answers, shares(now.answers, {}, "No answer in these seconds."));
    put(this.endings, shares(now.missed, this.live.parts.words || {}, "Every request was answered in time."));
  }

  end() {
    clearInterval(this.timer);
    this.latency.end();
    this.load.end();
  }
}

function shares(counts, words, none) {
  const found = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  const total = found.reduce((sum, [, count]) => sum + count, 0);
  if (!total) return h("p", { class: "small" }, none);
  return h("table", {}, h("tbody", {}, found.map(([name, count]) => h("tr", {}, h("td", {}, words[name] || name), h("td", {}, number(count)), h("td", {}, percent(count / total))))));
}
