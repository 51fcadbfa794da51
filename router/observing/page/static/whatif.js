// What if more came, or the SLO were another? The simulator answers, with the profiles that are in force.

import { h, put } from "./dom.js";
import { number, percent, rankOf } from "./figures.js";
import { call } from "./live.js";
import { keptCell } from "./overview.js";

const STEPS = 60; // of the slider: from a tenth of the present rate to ten times, by equal ratios
const factor = (step) => 10 ** ((step - STEPS / 2) / (STEPS / 2));

export class WhatIf {
  constructor(live) {
    this.live = live;
    this.title = "What if";
    this.rows = new Map();
    this.body = h("tbody");
    this.note = h("p", { role: "status", class: "small" });
    this.busy = h("div", { class: "boxes" });
    this.all = h("input", { type: "range", min: 0, max: STEPS, value: STEPS / 2, "aria-label": "All rates together", oninput: () => this.scaleAll() });
    this.allText = h("span", {}, "×1.0");
    this.box = h("div", {}, h("h2", {}, "What if"),
      h("p", {}, "Change a rate or an SLO: the gateway's own scheduler answers in virtual time, with the measured profiles. Nothing is changed. ", h("code", {}, "penstock simulate"), " knows more options."),
      h("div", { class: "line" }, h("label", {}, "All rates "), this.all, this.allText, h("button", { type: "button", onclick: () => this.reset() }, "As it is now")),
      h("div", { class: "scroll" }, h("table", { "aria-label": "Forecast" }, h("thead", {}, h("tr", {}, ["model", "req/s", "SLO ms", "in time", "in time/s", "p50 ms", "p99 ms", "answers"].map((title) => h("th", { scope: "col" }, title)))), this.body)),
      this.note, h("h2", {}, "How busy each slice would be"), this.busy);
  }

  update() {
    if (!this.live.parts.gateway || this.live.series.at.length < 3) {
      this.note.textContent = "The present rates are being read.";
      return;
    }
    if (!this.rows.size) this.reset();
  }

  reset() {
    this.rows.clear();
    this.all.value = STEPS / 2;
    this.allText.textContent = "×1.0";
    const models = this.live.models.map((model) => [model, this.live.now(model.name)?.rate || 0]).sort((a, b) => b[1] - a[1]).slice(0, 50);
    for (const [model, rate] of models) this.rows.set(model.name, this.row(model, rate));
    put(this.body, [...this.rows.values()].map((row) => row.box));
    this.soon();
  }

  row(model, rate) {
    const base = Math.max(rate, 0);
    const asked = h("input", { type: "number", min: 0, step: "any", value: base.toPrecision(3) * 1, "aria-label": `Requests a second for ${model.name}`, style: "width:6em", oninput: () => this.soon() });
    const slo = h("input", { type: "number", min: 0.1, step: "any", value: model.slo_us / 1000, "aria-label": `SLO of ${model.name} in milliseconds`, style: "width:6em", oninput: () => this.soon() });
    const cells = Array.from({ length: 5 }, () => h("td", {}, "–"));
    return { model, base, asked, slo, cells, box: h("tr", {}, h("td", {}, h("a", { href: `#/model/${encodeURIComponent(model.name)}` }, model.name)), h("td", {}, asked), h("td", {}, slo), cells) };
  }

  scaleAll() {
    const by = factor(this.all.value);
    this.allText.textContent = `×${by.toFixed(by < 1 ? 2 : 1)}`;
    for (const row of this.rows.values()) row.asked.value = (row.base * by).toPrecision(3) * 1;
    this.soon();
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 250);
  }

  async ask() {
    const rates = {}, slo = {};
    for (const [name, row] of this.rows) {
      if (Number(row.asked.value) > 0) rates[name] = Number(row.asked.value);
      if (Number(row.slo.value) * 1000 !== row.model.slo_us) slo[name] = Number(row.slo.value);
    }
    if (!Object.keys(rates).length) {
      this.note.textContent = "Nothing is asked at present: give a model a rate.";
      return;
    }
    if (this.asking) { this.again = true; return; } // one question at a time, the latest last
    this.asking = true;
    this.note.className = "small";
    this.note.textContent = "The simulator computes.";
    const began = performance.now();
    try {
      const found = await (await call("v2/what-if", { method: "POST", body: JSON.stringify({ rates, slo_ms: slo }), headers: { "content-type": "application/json" } })).json();
      this.show(found, (performance.now() - began) / 1000);
    } catch (error) {
      this.note.textContent = error.said || String(error);
      this.note.className = "bad";
    }
    this.asking = false;
    if (this.again) { this.again = false; this.ask(); }
  }

  show(found, seconds) {
    const by = new Map(found.models.map((each) => [each.model, each]));
    for (const [name, row] of this.rows) {
      const each = by.get(name);
      const texts = each ? [keptCell(each.in_time, each.objective), number(each.goodput), number(each.p50_ms), number(each.p99_ms),
        Object.entries(each.variants).map(([variant, share]) => `${variant} ${percent(share, 0)}`).join(", ")] : ["–", "–", "–", "–", "–"];
      row.cells.forEach((cell, at) => put(cell, texts[at]));
    }
    put(this.busy, Object.entries(found.busy).map(([name, share]) => h("div", { class: `box ${share > 0.95 ? "doubtful" : ""}` }, h("b", {}, name), h("span", {}, `busy ${percent(share, 0)}`))));
    const broken = found.models.filter((each) => rankOf(each.in_time, each.objective) !== "good").map((each) => each.model);
    const verdict = broken.length ? `Promises would break: ${broken.join(", ")}.` : "Every promise would be kept.";
    this.note.textContent = `${verdict} ${number(found.seconds)} s of traffic were simulated in ${seconds.toFixed(1)} s.${found.left_out.length ? ` Left out: ${found.left_out.join("; ")}` : ""}`;
    this.note.className = broken.length ? "bad" : "good";
  }

  end() { clearTimeout(this.timer); }
}
