// The page: which screen is shown, and whether what it shows is fresh.

import { h, put } from "./dom.js";
import { duration } from "./figures.js";
import { Live } from "./live.js";
import { Overview } from "./overview.js";
import { ModelView } from "./model.js";
import { Devices } from "./devices.js";
import { Plans } from "./plans.js";
import { WhatIf } from "./whatif.js";
import { RequestView } from "./request.js";

const SCREENS = [["", "Overview", Overview], ["devices", "Devices", Devices], ["plans", "Plans", Plans], ["what-if", "What if", WhatIf], ["request", "Requests", RequestView], ["model", null, ModelView]];
const STALE_MS = 4000;

const live = new Live();
const main = document.getElementById("main");
const state = document.getElementById("state");
let screen = null;

function show() {
  const [, name = "", rest = ""] = location.hash.split("/");
  const [, , View] = SCREENS.find(([key]) => key === name) || SCREENS[0];
  if (screen) screen.end();
  screen = new View(live, decodeURIComponent(rest));
  put(document.getElementById("screens"), SCREENS.filter(([, title]) => title).map(([key, title]) => h("a", { href: `#/${key}`, "aria-current": key === name ? "page" : null }, title)));
  put(main, screen.box);
  document.title = `${screen.title} – Penstock`;
  screen.update();
  window.scrollTo(0, 0);
}

function tell() {
  const gateway = live.parts.gateway;
  const fresh = live.state === "live" && performance.now() - live.heard < STALE_MS;
  let text = live.state;
  if (fresh) text = `${gateway.ready ? "ready" : "not ready"}, up ${duration(gateway.uptime_s)}`;
  else if (live.heard) text = `${live.state === "live" ? "no news" : live.state}; the figures are ${duration((performance.now() - live.heard) / 1000)} old`;
  if (state.textContent !== text) state.textContent = text;
  state.className = fresh && gateway.ready ? "good" : live.state === "connecting" ? "" : "bad";
}

window.addEventListener("hashchange", () => { show(); main.focus(); });
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = document.getElementById("request").value.trim();
  location.hash = `#/request/${encodeURIComponent(name || "last")}`;
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
  if (event.key === "/") { event.preventDefault(); document.getElementById("request").focus(); }
  const number = Number(event.key);
  if (number >= 1 && number <= 5) location.hash = `#/${SCREENS[number - 1][0]}`;
});
live.listeners.add(() => {
  tell();
  if (live.state === "live" && !document.hidden) screen.update();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && live.parts.gateway) screen.update(); });
setInterval(tell, 1000);
show();
live.run();
