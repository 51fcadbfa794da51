// Who runs where: slices with their replicas, GPUs, nodes, cells.

import { gauge, h, put, Table } from "./dom.js";
import { duration, number, percent } from "./figures.js";
import { gpuPart } from "./gpus.js";
import { read } from "./live.js";

const plain = (state) => ["ready", "ok", "joined", "standing by"].includes(state);

export class Devices {
  constructor(live) {
    this.live = live;
    this.title = "Devices";
    this.busy = new Map(); // by slice: [at, busy_us] readings
    this.slices = new Table("Slices", [
      { title: "slice", cell: (row) => row.name, by: (row) => row.name },
      { title: "state", left: true, cell: (row) => h("span", { class: plain(row.state) ? "" : "bad" }, [row.state, row.rehearsed ? ", rehearsed" : "", row.notice ? `, ${row.notice}` : ""].join("")), by: (row) => row.state },
      { title: "busy", cell: (row) => row.share === null ? "–" : gauge(row.share, row.share > 0.9 ? "doubtful" : "known", percent(row.share, 0)), by: (row) => -(row.share ?? -1) },
      { title: "pid", cell: (row) => row.pid || "–", by: (row) => row.pid || 0, spare: true },
      { title: "restarts", cell: (row) => row.restarts, by: (row) => -row.restarts },
    ], (row) => row.name);
    this.places = h("div", { class: "boxes" });
    this.gpus = h("section");
    this.nodes = h("section");
    this.box = h("div", {}, h("h2", {}, "Slices"), this.slices.box, this.gpus, this.nodes, h("h2", {}, "Replicas, by slice"), h("p", { class: "small" }, "A box is a slice; a profile that batches do not bear out is marked."), this.places);
    this.timer = setInterval(() => this.ask(), 3000);
    this.ask();
  }

  async ask() {
    try {
      const status = await read("v2/status");
      const bySlice = new Map(status.slices.map((each) => [each.name, []]));
      for (const model of status.models) for (const each of model.replicas) bySlice.get(each.slice)?.push(each);
      put(this.places, [...bySlice].map(([name, replicas]) => {
        const bad = replicas.some((each) => !plain(each.state)), odd = replicas.some((each) => each.profile !== "fresh");
        return h("div", { class: `box ${bad ? "bad" : odd ? "doubtful" : ""}` }, h("b", {}, name), byModel(replicas).map(([model, each]) => h("span", {},
          h("a", { href: `#/model/${encodeURIComponent(model)}` }, model), ` ${each.map(word).join(", ")}`)), replicas.length ? null : h("span", {}, "nothing is loaded"));
      }));
    } catch (error) {
      put(this.places, h("p", { class: "bad" }, error.said || String(error)));
    }
  }

  update() {
    const at = this.live.parts.gateway?.unix_s;
    if (!at) return;
    const rows = (this.live.parts.slices || []).map((each) => ({ ...each, share: this.share(each, at) }));
    this.slices.set(rows);
    put(this.gpus, gpuPart(this.live.parts.gpus || [], new Map(rows.map((each) => [each.name, each])), this.bySlice(), plain));
    put(this.nodes, nodePart(this.live.parts.nodes || []), cellPart(this.live.parts.cells));
  }

  /* The names of the models on each slice. */
  bySlice() {
    const found = new Map();
    for (const model of this.live.models) for (const name of model.slices) found.set(name, [...(found.get(name) || []), model.name]);
    return found;
  }

  /* The share of the last ten seconds in which a slice computed. */
  share(slice, at) {
    if (slice.busy_us === undefined) return null;
    const readings = this.busy.get(slice.name) || this.busy.set(slice.name, []).get(slice.name);
    readings.push([at, slice.busy_us]);
    while (readings.length > 2 && at - readings[1][0] > 10) readings.shift();
    const [first, was] = readings[0];
    return at > first ? Math.max(0, Math.min(1, (slice.busy_us - was) / 1e6 / (at - first))) : null;
  }

  end() { clearInterval(this.timer); }
}

function byModel(replicas) {
  const found = new Map();
  for (const each of replicas) found.set(each.model, [...(found.get(each.model) || []), each]);
  return [...found];
}

function word(replica) {
  const state = plain(replica.state) ? "" : ` (${replica.state}${replica.reason ? `: ${replica.reason}` : ""})`;
  return replica.variant + state + (replica.profile === "fresh" ? "" : ` (${replica.profile} ×${replica.profile_ratio.toFixed(2)})`);
}

function nodePart(nodes) {
  if (!nodes.length) return null;
  return [h("h2", {}, "Nodes"), h("div", { class: "boxes" }, nodes.map((node) => h("div", { class: `box ${node.state === "lost" ? "bad" : ""}` },
    h("b", {}, node.name), h("span", {}, node.reason ? `${node.state}: ${node.reason}` : node.state), h("span", {}, `${node.address || "no address"}, ${node.kind}, ${node.cores} cores`),
    h("span", {}, `there for ${duration(node.joined_s)}, ${number(node.trip_us / 1000)} ms there and back`), h("span", {}, node.slices.join(", ")))))];
}

function cellPart(cells) {
  if (!cells) return null;
  return [h("h2", {}, "Cells"), h("pre", { class: "panel" }, JSON.stringify(cells, null, 1))];
}
