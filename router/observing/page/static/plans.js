// What is placed where, by whom, and what another plan would change.

import { h, meter, put } from "./dom.js";
import { number, percent } from "./figures.js";
import { call, read } from "./live.js";

const UNDO = "Back to what penstock.yaml says";

export class Plans {
  constructor(live) {
    this.live = live;
    this.predicted = new Map(); // by model, the sentences of a prediction
    this.title = "Plans";
    this.move = h("div", { "aria-live": "polite" });
    this.now = h("div");
    this.proposal = h("div");
    this.said = h("p", { role: "status" });
    this.rollouts = h("div", { "aria-live": "polite" });
    this.box = h("div", {}, h("h2", {}, "Under way"), this.move, h("h2", {}, "In force"), this.now, h("h2", {}, "Another plan"), this.proposal, h("h2", {}, "Guarded rollouts"), this.rollouts,
      h("h2", {}, "Change it"), h("div", { class: "line" },
        h("button", { type: "button", onclick: () => this.act("POST", "v2/placement/roll-back", "Give up the move under way?") }, "Give up the move under way"),
        h("button", { type: "button", onclick: () => this.act("DELETE", "v2/placement", `${UNDO}?`) }, UNDO)),
      h("p", { class: "small" }, "A change needs the page of the admin door (", h("code", {}, "admin:"), " in penstock.yaml), and a key with the role admin where keys are asked for. Every change leaves a line in the log."), this.said);
    this.timer = setInterval(() => this.ask(), 2000);
    this.ask();
  }

  async act(method, path, question) {
    if (!window.confirm(question)) return;
    try {
      await call(path, { method });
      this.said.textContent = "It is on its way.";
      this.said.className = "good";
    } catch (error) {
      this.said.textContent = error.said || String(error);
      this.said.className = "bad";
    }
    this.ask();
  }

  async predict(model) {
    this.predicted.set(model, ["The simulator computes."]);
    this.update();
    try {
      this.predicted.set(model, (await read(`v2/rollouts/${encodeURIComponent(model)}/prediction`)).said);
    } catch (error) {
      this.predicted.set(model, [error.said || String(error)]);
    }
    this.update();
  }

  async ask() {
    try {
      this.placement = await read("v2/placement");
      this.update();
    } catch (error) {
      put(this.now, h("p", { class: "bad" }, error.said || String(error)));
    }
  }

  update() {
    const { move, proposal, rollouts } = this.live.parts;
    put(this.rollouts, rolloutBoxes(rollouts || [], (model, verb) => this.act("POST", `v2/rollouts/${encodeURIComponent(model)}/${verb}`, `${verb} the rollout of ${model}?`), (model) => this.predict(model), this.predicted));
    const json = JSON.stringify([move, proposal, this.placement]);
    if (json === this.shown) return;
    this.shown = json;
    put(this.move, moveWords(move));
    if (this.placement) put(this.now, placed(this.placement));
    put(this.proposal, proposed(proposal, this.placement, () => this.act("POST", "v2/placement/proposed", "Apply the proposed plan?")));
  }

  end() { clearInterval(this.timer); }
}

function rolloutBoxes(rollouts, act, predict, predicted) {
  if (!rollouts.length) return h("p", { class: "small" }, "None: a model with ", h("code", {}, "rollout: {of: MODEL}"), " takes another's place step by step.");
  return rollouts.map((each) => h("div", { class: "panel", style: "margin-bottom:.7em" },
    h("p", { class: each.state === "rolled back" ? "bad" : "" }, h("b", {}, `${each.candidate} gets ${number(each.share * 100)} % of the requests for ${each.model}`), ` (${each.state})`),
    h("div", { class: "line" }, each.steps.map((step, at) => h("span", { class: each.state === "canary" && at === each.step - 1 ? "known" : "small" }, `${number(step * 100)} %`)), meter(each.share, each.state === "rolled back" ? "bad" : "known")),
    h("p", {}, each.why),
    each.measures.length ? h("table", { "aria-label": `Measures of ${each.candidate}` }, h("thead", {}, h("tr", {}, ["measure", "candidate", "present model", "requests", "evidence for a step", "for a rollback"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, each.measures.map((one) => h("tr", {}, h("td", {}, one.measure), h("td", {}, percent(one.candidate, 2)), h("td", {}, percent(one.present, 2)), h("td", {}, number(one.requests)), h("td", {}, meter(one.fine, "good"), percent(one.fine, 0)), h("td", {}, meter(one.worse, "bad"), percent(one.worse, 0)))))) : null,
    predicted.has(each.model) ? h("ul", { class: "plain", "aria-label": `Prediction for ${each.candidate}` }, predicted.get(each.model).map((said) => h("li", {}, said))) : null,
    h("div", { class: "line" }, ["start", "promote", "abort"].map((verb) => h("button", { type: "button", onclick: () => act(each.model, verb) }, verb)),
      h("button", { type: "button", onclick: () => predict(each.model) }, "predict"))));
}

function moveWords(move) {
  if (!move) return null;
  const lines = [...move.reasons, ...move.waiting.map((each) => `waiting: ${each}`), ...move.refused.map((each) => `not in force: ${each}`)];
  return [h("p", {}, move.state === "steady" ? "Nothing is being moved." : `${move.state}: step ${move.step} of ${move.steps}`),
    lines.length ? h("ul", { class: "plain" }, lines.map((each) => h("li", { class: each.startsWith("not") ? "doubtful" : "" }, each))) : null];
}

/* By slice the models on it, from a placement's `models: {name: {slices}}`. */
function modelsOn(placement) {
  const found = new Map((placement.slices || []).map((each) => [each.name, []]));
  for (const [model, each] of Object.entries(placement.models || {})) for (const name of each.slices || []) {
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(model);
  }
  return found;
}

function boxes(found, before) {
  return h("div", { class: "boxes" }, [...found].sort().map(([name, models]) => h("div", { class: "box" }, h("b", {}, name),
    models.length ? models.map((model) => h("span", { class: before && !(before.get(name) || []).includes(model) ? "good" : "" }, model)) : h("span", {}, "nothing"))));
}

function placed(placement) {
  return [h("p", {}, placement.by === "file" ? "As penstock.yaml says." : "Applied by an operator or a plan; penstock.yaml says otherwise."), boxes(modelsOn(placement)),
    (placement.drift || []).length ? h("ul", { class: "plain" }, placement.drift.map((each) => h("li", { class: "doubtful" }, typeof each === "string" ? each : JSON.stringify(each)))) : null];
}

function proposed(proposal, placement, take) {
  if (!proposal) return h("p", { class: "small" }, "None: control asks for one when slices are lost or cannot carry what is asked.");
  const before = placement ? modelsOn(placement) : null;
  return [h("p", {}, `${proposal.state}: ${proposal.sentence}`), h("p", { class: "small" }, `Because ${proposal.reason}`),
    Object.keys(proposal.slices).length ? [h("p", { class: "small" }, "After it; what is new on a slice is green:"), boxes(new Map(Object.entries(proposal.slices)), before)] : null,
    Object.keys(proposal.attainment).length ? h("p", {}, "Predicted in time: ", Object.entries(proposal.attainment).map(([name, share]) => `${name} ${percent(share)}`).join(", ")) : null,
    proposal.refused.map((each) => h("p", { class: "bad" }, each)),
    proposal.state === "proposed" ? h("button", { type: "button", onclick: take }, "Apply this plan") : null,
    proposal.command ? [h("p", { class: "small" }, "This applies it:"), h("pre", { class: "panel" }, proposal.command)] : null];
}
