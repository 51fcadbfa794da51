// Who runs where: slices with their replicas, GPUs, nodes, cells.

import { h, meter, put, Table } from "./dom.js";
import { bytes, duration, number, percent } from "./figures.js";
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
      { title: "busy", cell: (row) => row.share === null ? "–" : [meter(row.share, row.share > 0.9 ? "doubtful" : "known"), percent(row.share, 0)], by: (row) => -(row.share ?? -1) },
      { title: "pid", cell: (row) => row.pid || "–", by: (row) => row.pid || 0, spare: true },
      { title: "restarts", cell: (row) => row.restarts, by: (row) => -row.restarts },
    ], (row) => row.name);
    this.places = h("div", { class: "boxes" });
    this.gpus = h("section");
    this.layouts = h("section");
    this.models = new Map(); // by slice: the models on it, at the last status
    this.nodes = h("section");
    this.box = h("div", {}, h("h2", {}, "Slices"), this.slices.box, this.layouts, this.gpus, this.nodes, h("h2", {}, "Replicas, by slice"), h("p", { class: "small" }, "A box is a slice; a profile that batches do not bear out is marked."), this.places);
    this.timer = setInterval(() => this.ask(), 3000);
    this.ask();
  }

  async ask() {
    try {
      const status = await read("v2/status");
      const bySlice = new Map(status.slices.map((each) => [each.name, []]));
      for (const model of status.models) for (const each of model.replicas) bySlice.get(each.slice)?.push(each);
      this.models = new Map([...bySlice].map(([name, replicas]) => [name, byModel(replicas).map(([model]) => model)]));
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
    put(this.layouts, layoutPart(this.live.parts.layouts || [], rows, this.models));
    put(this.gpus, gpuPart(this.live.parts.gpus || [], rows));
    put(this.nodes, nodePart(this.live.parts.nodes || []), cellPart(this.live.parts.cells));
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

/* Each GPU as a bar: MIG instances at their memory slices, or MPS shares by percent, and what is free. */
function layoutPart(layouts, slices, models) {
  if (!layouts.length) return null;
  const bySlice = new Map(slices.map((each) => [each.name, each]));
  return [h("h2", {}, "How GPUs are divided"), h("p", { class: "small" }, "A bar is a GPU: MIG instances at their memory slices, or MPS shares by percent of its threads."),
    layouts.map((each) => h("figure", { class: "gpu" }, h("figcaption", {}, h("b", {}, each.device), ` ${each.kind}, ${each.how === "mig" ? "MIG" : "MPS"}${each.placed ? "" : ", at places where they fit"}`),
      h("ol", { class: "bar", style: `grid-template-columns:repeat(${Math.round(each.width)},minmax(0,1fr))` }, spans(each).map((part) => partOf(part, bySlice, models)))))];
}

/* The parts of a layout, and what is free between them. */
function spans(layout) {
  const found = [];
  let at = 0;
  for (const part of layout.parts) {
    if (part.start > at) found.push({ start: at, size: part.start - at, share: "free", slices: [] });
    found.push(part);
    at = part.start + part.size;
  }
  if (layout.width > at) found.push({ start: at, size: layout.width - at, share: "free", slices: [] });
  return found;
}

function partOf(part, bySlice, models) {
  const there = part.slices.map((name) => bySlice.get(name)).filter(Boolean), away = there.some((each) => !plain(each.state));
  const busy = there.map((each) => each.share).filter((share) => share !== null && share !== undefined);
  const most = busy.length ? Math.max(...busy) : null;
  const who = [...new Set(part.slices.flatMap((name) => models.get(name) || []))];
  const from = Math.round(part.start) + 1, size = Math.max(1, Math.round(part.size));
  return h("li", { class: part.slices.length ? (away ? "bad" : "") : "free", style: `grid-column:${from}/span ${size}`, title: `${part.share}: ${part.slices.join(", ") || "no slice"}` },
    h("b", {}, part.share.replace(/^mig:/, "").replace(/^mps:(.*)/, "$1 %")), part.slices.length ? h("span", {}, part.slices.join(", ")) : null,
    who.length ? h("span", {}, who.join(", ")) : null, most === null ? null : h("span", {}, `busy ${percent(most, 0)}`, meter(most, most > 0.9 ? "doubtful" : "known")));
}

function gpuPart(gpus, slices) {
  if (!gpus.length) return null;
  const busy = new Map(slices.map((each) => [each.name, each.share]));
  return [h("h2", {}, "GPUs"), h("div", { class: "boxes" }, gpus.map((gpu) => h("div", { class: `box ${gpu.state === "ok" ? "" : "bad"}` },
    h("b", {}, gpu.name), h("span", {}, gpu.uuid), h("span", { class: gpu.state === "ok" ? "" : "bad" }, gpu.reason ? `${gpu.state}: ${gpu.reason}` : gpu.state),
    h("span", {}, `memory ${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_bytes)} `, gpu.memory_bytes ? meter((gpu.memory_used_bytes || 0) / gpu.memory_bytes, "known") : null),
    h("span", {}, `busy ${gpu.used_percent ?? "–"} %, ${gpu.temperature_c ?? "–"} °C, ${number(gpu.power_w)} W`),
    Object.entries(gpu.slices).map(([name, share]) => h("span", {}, `${name}: ${share}, busy ${percent(busy.get(name), 0)}`)))))];
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
