// Charts: lines over time by uPlot, and bars.

import { h, put } from "./dom.js";
import { clock, number } from "./figures.js";

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300]; // between two marks of the time

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* Lines over time. `lines`: [title, name of a CSS color]. `label` is for those who do not see it. */
export class Lines {
  constructor(label, lines, unit, level = null) {
    this.box = h("div", { role: "img", "aria-label": label });
    this.lines = lines;
    this.unit = unit;
    this.level = level;
    this.plot = null;
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.box);
  }

  set(columns) {
    if (!this.plot) this.make(columns);
    else this.plot.setData(columns);
  }

  make(columns) {
    const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    this.plot = new uPlot({
      width: this.box.clientWidth || 500, height: 190, padding: [12, 30, 0, 0], legend: { live: true }, cursor: { drag: { setScale: false } },
      scales: { y: { range: (plot, low, high) => [0, Math.max(high || 0, this.level || 0, 1e-3) * 1.08] } },
      axes: [{ ...axis, space: 80, size: 32, incrs: STEPS_S, values: (plot, ticks) => ticks.map(clock) }, { ...axis, size: wide, values: (plot, ticks) => ticks.map((tick) => number(tick)) }],
      series: [{ label: "at", value: (plot, at) => at === null ? "–" : clock(at) }, ...this.lines.map(([title, name]) => ({ label: title, stroke: color(name), width: 1.6, value: (plot, value) => value === null ? "–" : `${number(value)} ${this.unit}` }))],
      hooks: { draw: [(plot) => this.level && drawLevel(plot, this.level)] },
    }, columns, this.box);
  }

  fit() {
    if (this.plot && this.box.clientWidth) this.plot.setSize({ width: this.box.clientWidth, height: 190 });
  }

  end() {
    this.observer.disconnect();
    if (this.plot) this.plot.destroy();
  }
}

/* As wide as its longest mark (12 px letters), with the tick. */
const wide = (plot, marks) => 24 + 7 * Math.max(3, ...(marks || []).map((each) => each.length));

function drawLevel(plot, level) {
  const y = plot.valToPos(level, "y", true);
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = color("--bad");
  ctx.setLineDash([5, 4]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/* A histogram of durations: each bar is a bucket, those over the SLO are marked. */
export function histogram(box, bounds, counts, sloUs) {
  let first = counts.findIndex((count) => count > 0);
  let last = counts.length - 1 - [...counts].reverse().findIndex((count) => count > 0);
  const slo = bounds.findIndex((bound) => bound >= sloUs);
  if (first < 0) { first = Math.max(0, slo - 6); last = slo; }
  first = Math.max(0, Math.min(first, slo) - 1);
  last = Math.min(counts.length - 1, Math.max(last, slo) + 1);
  const most = Math.max(1, ...counts);
  const bars = [];
  for (let at = first; at <= last; at += 1) {
    const to = at < bounds.length ? `${number(bounds[at] / 1000)} ms` : "more";
    const late = (at ? bounds[at - 1] : 0) >= sloUs;
    bars.push(h("div", { class: late && "late", style: `height:${(counts[at] / most * 100).toFixed(1)}%`, title: `up to ${to}: ${counts[at]}` }));
  }
  put(box, h("div", { class: "bars" }, bars), h("div", { class: "axis" },
    h("span", {}, `${number((first ? bounds[first - 1] : 0) / 1000)} ms`),
    h("span", {}, `SLO ${number(sloUs / 1000)} ms; slower is marked`),
    h("span", {}, last < bounds.length ? `${number(bounds[last] / 1000)} ms` : "and more")));
}
