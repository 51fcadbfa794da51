// GPUs: how each is divided, who runs where, what is free.

import { gauge, h, meter } from "./dom.js";
import { bytes, number, percent } from "./figures.js";

const ON_THE_RIGHT = { busy: "", memory: "spare" };

/* `slices`: by name, with state and share (busy); `models`: by slice, the names of the models on it. */
export function gpuPart(gpus, slices, models, plain) {
  if (!gpus.length) return null;
  return [h("h2", {}, "GPUs"), h("div", { class: "gpus" }, gpus.map((gpu) => card(gpu, { slices, models, plain })))];
}

function card(gpu, house) {
  const state = [gpu.reason ? `${gpu.state}: ${gpu.reason}` : gpu.state, gpu.rehearsed ? "rehearsed" : null].filter(Boolean).join(", ");
  const told = [gpu.used_percent === null ? null : `busy ${gpu.used_percent} %`, gpu.temperature_c === null ? null : `${gpu.temperature_c} °C`, gpu.power_w === null ? null : `${number(gpu.power_w)} W`].filter(Boolean);
  return h("section", { class: `box gpu ${gpu.state === "ok" ? "" : "bad"}`, "aria-label": `GPU ${gpu.uuid}` },
    h("b", {}, gpu.name, " ", h("span", { class: "beside" }, gpu.uuid)),
    h("span", {}, h("span", { class: `beside ${gpu.state === "ok" ? "" : "bad"}` }, state), told.length ? `, ${told.join(", ")}` : null),
    gpu.memory_bytes ? h("span", {}, meter((gpu.memory_used_bytes || 0) / gpu.memory_bytes, "known"), `memory ${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_bytes)}`) : null,
    gpu.mig ? divided(gpu, house) : shared(gpu, house));
}

/* MIG instances at their places, then a row for each of their slices. */
function divided(gpu, house) {
  const { mig } = gpu;
  return [strip(gpu, house), h("span", {}, roomWords(mig.room)), table(`Instances of ${gpu.uuid}`, ["at", "instance", "slice", "runs", "busy", "memory"],
    mig.instances.flatMap((each) => {
      const names = each.slices.length ? each.slices : [null];
      const once = (column, content) => h("td", { class: column, rowspan: names.length > 1 ? names.length : null }, content);
      return names.map((name, at) => h("tr", {}, at ? null : [once("left", each.start), once("left", each.profile)],
        name === null ? [h("td", { class: "left", colspan: 3 }, "no slice uses it")] : cells(name, house),
        at ? null : once("spare", `${each.memory_used_bytes === null ? "" : `${bytes(each.memory_used_bytes)} of `}${bytes(each.memory_bytes)}`)));
    }))];
}

/* Shares that have no place: parts by MPS, turns, a whole GPU. */
function shared(gpu, house) {
  return [freeWords(gpu.slices), table(`Shares of ${gpu.uuid}`, ["share", "slice", "runs", "busy"],
    Object.entries(gpu.slices).map(([name, share]) => h("tr", {}, h("td", { class: "left" }, share), cells(name, house))))];
}

/* How much of a GPU no MPS share has; null where shares are none of MPS, or have all of it. A model's own process
   (slice+model) works within the share of its slice. */
function freeWords(slices) {
  const percents = Object.entries(slices).filter(([name, each]) => each.startsWith("mps:") && !name.includes("+")).map(([, each]) => Number(each.slice(4)));
  const free = 100 - percents.reduce((sum, each) => sum + each, 0);
  return percents.length && free > 0 ? h("span", {}, `${number(free)} % of its threads are free.`) : null;
}

function cells(name, { slices, models, plain }) {
  const slice = slices.get(name), there = models.get(name) || [];
  return [h("td", { class: slice && plain(slice.state) ? "left wraps" : "left wraps bad" }, name, slice && plain(slice.state) ? null : ` (${slice ? slice.state : "gone"})`),
    h("td", { class: "left wraps" }, there.length ? there.map((model, at) => [at ? ", " : null, h("a", { href: `#/model/${encodeURIComponent(model)}` }, model)]) : "nothing"),
    h("td", {}, slice && slice.share !== null ? gauge(slice.share, slice.share > 0.9 ? "doubtful" : "known", percent(slice.share, 0)) : "–")];
}

function table(label, titles, rows) {
  if (!rows.length) return h("span", {}, "no slice has a share of it");
  return h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col", class: ON_THE_RIGHT[title] ?? "left" }, title)))), h("tbody", {}, rows));
}

function strip({ uuid, mig }, { slices, plain }) {
  const seats = mig.instances.map((each) => {
    const busy = Math.max(0, ...each.slices.map((name) => slices.get(name)?.share ?? 0));
    const bad = each.slices.some((name) => !plain(slices.get(name)?.state));
    return h("div", { class: ["seat", bad ? "bad" : "", each.slices.length ? "" : "idle"].join(" ").trim(), style: span(each.start, each.size), title: `${each.profile} at ${each.start}: ${each.slices.join(", ") || "no slice uses it"}` },
      h("i", { style: `height:${(busy * 100).toFixed(0)}%` }), h("b", {}, each.profile.split(".")[0]), h("small", {}, each.slices.join(" ") || "unused"));
  });
  const gaps = gapsOf(mig).map((each) => h("div", { class: each.open ? "seat free" : "seat free shut", style: span(each.start, each.size), title: each.open ? "free" : "no instance can begin here" }, h("b", {}, each.open ? "free" : "–")));
  const numbers = Array.from({ length: mig.size }, (_, at) => h("span", { style: span(at, 1) }, at));
  return h("div", { class: "strip", role: "img", "aria-label": stripWords(uuid, mig, slices), style: `grid-template-columns:repeat(${mig.size},minmax(0,1fr))` }, seats, gaps, numbers);
}

const span = (start, size) => `grid-column:${start + 1}/span ${size}`;

/* Runs of memory slices without an instance; `open` where one could begin. */
export function gapsOf({ size, instances, room }) {
  const taken = new Set(instances.flatMap((each) => Array.from({ length: each.size }, (_, at) => each.start + at)));
  const starts = new Set(Object.values(room).flat());
  const found = [];
  for (let at = 0; at < size; at += 1) {
    if (taken.has(at)) continue;
    const last = found[found.length - 1];
    if (last && last.start + last.size === at) last.size += 1;
    else found.push({ start: at, size: 1, open: false });
    if (starts.has(at)) found[found.length - 1].open = true;
  }
  return found;
}

const places = (start, size) => size === 1 ? `memory slice ${start}` : `memory slices ${start} to ${start + size - 1}`;

/* The picture in words, for those who do not see it. */
function stripWords(uuid, mig, slices) {
  const all = [...mig.instances.map((each) => ({ ...each, words: `${each.profile}, ${each.slices.map((name) => `slice ${name} busy ${percent(slices.get(name)?.share, 0)}`).join(" and ") || "no slice uses it"}` })),
    ...gapsOf(mig).map((each) => ({ ...each, words: each.open ? "free" : "no instance can begin here" }))].sort((a, b) => a.start - b.start);
  return `GPU ${uuid}, from left to right. ${all.map((each) => `${places(each.start, each.size)}: ${each.words}`).join("; ")}.`;
}

function roomWords(room) {
  const found = Object.entries(room);
  if (!found.length) return "No room for another instance.";
  return `Room for ${found.map(([name, starts]) => `${name} at ${starts.join(" ")}`).join(", or ")}.`;
}
