// The first screen: is every promise kept, what needs a look, what happened.

import { gauge, h, put, Table, tile } from "./dom.js";
import { clock, ms, number, percent, rankOf } from "./figures.js";
import { Lines } from "./charts.js";

const link = (name) => h("a", { href: `#/model/${encodeURIComponent(name)}` }, name);

/* The version beside a name that does not say it, as `digits@1` does. */
export const versionOf = ({ name, version }) => version === undefined || name.endsWith(`@${version}`) ? null : h("span", { class: "small" }, ` version ${version}`);

export const keptCell = (kept, objective) => {
  const rank = rankOf(kept, objective);
  return h("span", { class: rank }, kept === null || kept === undefined ? "–" : gauge(kept, rank, percent(kept)));
};

export const burnCell = (burn) => burn === undefined ? "–" : h("span", { class: burn > 1 ? "bad" : "" }, number(burn));

export function noticeList(notices) {
  if (!notices.length) return h("p", { class: "good" }, "Nothing needs a look: every promise is kept, every slice is there.");
  return h("ul", { class: "plain" }, notices.map((each) => h("li", { class: each.rank },
    each.model ? h("a", { href: `#/model/${encodeURIComponent(each.model)}` }, each.text)
      : each.slice ? h("a", { href: "#/devices" }, each.text) : each.text)));
}

export function eventList(events) {
  if (!events.length) return h("p", { class: "small" }, "No event yet.");
  return h("ul", { class: "plain" }, [...events].reverse().map((each) => h("li",
    { class: each.level === "error" ? "bad" : each.level === "warning" ? "doubtful" : "" },
    h("span", { class: "small" }, `${clock(each.unix_s)} ${each.kind} ${each.times > 1 ? `(${each.times} times) ` : ""}`), each.text)));
}

export class Overview {
  constructor(live) {
    this.live = live;
    this.title = "Overview";
    this.tiles = { kept: tile("in time, last 10 s"), goodput: tile("answers in time, a second"), rate: tile("requests a second"), open: tile("open requests"), models: tile("models ready"), slices: tile("slices ready") };
    this.chart = new Lines("Requests a second, and those answered in time, over the last minutes", [["asked", "--faint"], ["in time", "--accent"]], "/s");
    this.notices = h("div", { class: "some", "aria-live": "polite", tabindex: "0", role: "region", "aria-label": "Look at this first" });
    this.timeline = h("div", { class: "timeline", "aria-hidden": "true" });
    this.events = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Events", style: "max-height:22em;padding:.3em .6em" });
    this.filter = h("input", { type: "search", "aria-label": "Show only models whose name has", placeholder: "filter models", oninput: () => this.update() });
    this.count = h("span", { class: "small" });
    this.table = new Table("Models", [
      { title: "model", cell: (row) => [link(row.name), versionOf(row)], by: (row) => row.name },
      { title: "in time", cell: (row) => keptCell(row.now?.kept, row.objective), by: (row) => row.now?.kept ?? 2 },
      { title: "burn 5m", cell: (row) => burnCell(row.burn["5m"]), by: (row) => -(row.burn["5m"] ?? -1) },
      { title: "burn 1h", cell: (row) => burnCell(row.burn["1h"]), by: (row) => -(row.burn["1h"] ?? -1), spare: true },
      { title: "req/s", cell: (row) => number(row.now?.rate), by: (row) => -(row.now?.rate ?? 0) },
      { title: "in time/s", cell: (row) => number(row.now?.goodput), by: (row) => -(row.now?.goodput ?? 0), spare: true },
      { title: "queue", cell: (row) => number(row.queue_rows), by: (row) => -row.queue_rows },
      { title: "p50 ms", cell: (row) => ms(row.now?.p50), by: (row) => -(row.now?.p50 ?? 0), spare: true },
      { title: "p99 ms", cell: (row) => h("span", { class: row.now?.p99 > row.slo_us ? "bad" : "" }, ms(row.now?.p99)), by: (row) => -(row.now?.p99 ?? 0) },
      { title: "SLO ms", cell: (row) => ms(row.slo_us), by: (row) => row.slo_us },
      { title: "batch", cell: (row) => number(row.now?.batch), by: (row) => -(row.now?.batch ?? 0), spare: true },
      { title: "answers", left: true, cell: (row) => answered(row), by: (row) => row.variant, spare: true },
      { title: "replicas", cell: (row) => h("span", { class: row.ready ? "" : "bad" }, `${row.replicas[0]}/${row.replicas[1]}`), by: (row) => row.replicas[0] },
    ], (row) => row.name);
    this.tenants = new Table("Tenants", [
      { title: "tenant", cell: (row) => row.name, by: (row) => row.name },
      { title: "in time, all", cell: (row) => keptCell(row.offered ? row.good / row.offered : null, 0.99), by: (row) => row.offered ? row.good / row.offered : 2 },
      { title: "burn 5m", cell: (row) => burnCell(row.burn["5m"]), by: (row) => -(row.burn["5m"] ?? -1) },
      { title: "burn 1h", cell: (row) => burnCell(row.burn["1h"]), by: (row) => -(row.burn["1h"] ?? -1) },
      { title: "requests", cell: (row) => number(row.requests), by: (row) => -row.requests },
      { title: "rows in time", cell: (row) => number(row.goodput_rows), by: (row) => -row.goodput_rows },
    ], (row) => row.name);
    this.tenantPart = h("section", {}, h("h2", {}, "Tenants"), this.tenants.box);
    this.table.sort(1, false);
    this.box = h("div", {},
      h("h2", {}, "Now"), h("div", { class: "tiles" }, Object.values(this.tiles).map((each) => each.box)),
      h("h2", {}, "Look at this first"), this.notices,
      h("h2", {}, "Load"), h("div", { class: "panel" }, this.chart.box),
      h("h2", {}, "Models ", this.count), h("p", { class: "line" }, this.filter), this.table.box,
      this.tenantPart,
      h("h2", {}, "Events"), h("p", { class: "small" }, "The last ten minutes, and the latest events; the gateway's log has the same words."), this.timeline, this.events);
  }

  update() {
    const { live } = this, gateway = live.parts.gateway;
    if (!gateway) return;
    const models = live.models.map((model) => ({ ...model, now: live.now(model.name) }));
    const last = live.series.at.length - 1;
    const kept = live.series.kept[last];
    const promised = Math.min(...models.map((each) => each.objective || 1));
    this.tiles.kept.set(kept === null || kept === undefined ? "–" : percent(kept / 100), rankOf(kept === null || kept === undefined ? null : kept / 100, promised));
    this.tiles.goodput.set(number(live.series.goodput[last]));
    this.tiles.rate.set(number(live.series.rate[last]));
    this.tiles.open.set(number(gateway.open_requests));
    const ready = models.filter((each) => each.ready).length;
    this.tiles.models.set(`${ready}/${models.length}`, ready < models.length ? "bad" : "");
    const slices = live.parts.slices || [], up = slices.filter((each) => ["ready", "standing by"].includes(each.state)).length;
    this.tiles.slices.set(`${up}/${slices.length}`, up < slices.length ? "doubtful" : "");
    this.chart.set([live.series.at, live.series.rate, live.series.goodput]);
    const notices = JSON.stringify(live.parts.attention);
    if (notices !== this.shown) { this.shown = notices; put(this.notices, noticeList(live.parts.attention || [])); }
    const wanted = this.filter.value.toLowerCase();
    const found = models.filter((each) => each.name.toLowerCase().includes(wanted));
    this.count.textContent = found.length === models.length ? `(${models.length})` : `(${found.length} of ${models.length})`;
    this.table.set(found);
    const tenants = Object.entries(live.parts.tenants || {}).map(([name, each]) => ({ name, ...each }));
    this.tenantPart.hidden = tenants.length < 2;
    this.tenants.set(tenants);
    this.showEvents(gateway.unix_s);
  }

  showEvents(now) {
    const latest = this.live.events[this.live.events.length - 1]?.number;
    put(this.timeline, this.live.events.filter((each) => now - each.unix_s < 600).map((each) =>
      h("i", { class: each.level, style: `left:calc(${(100 - (now - each.unix_s) / 6).toFixed(2)}% - 5px)`, title: `${clock(each.unix_s)} ${each.text}` })));
    if (latest === this.latest && this.events.firstChild) return;
    this.latest = latest;
    put(this.events, eventList(this.live.events));
  }

  end() { this.chart.end(); }
}

function answered(row) {
  const answers = Object.entries(row.now?.answers || {}).sort((a, b) => b[1] - a[1]);
  if (answers.length < 2) return answers.length ? answers[0][0] : row.variant;
  const total = answers.reduce((sum, [, count]) => sum + count, 0);
  return answers.slice(0, 2).map(([name, count]) => `${name} ${percent(count / total, 0)}`).join(", ");
}

