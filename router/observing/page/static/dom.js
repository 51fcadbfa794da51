// Elements without a framework. Text is always text: nothing from a gateway becomes markup.

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key === "style") element.style.cssText = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  put(element, ...children);
  return element;
}

/* Take these in place of what is there. A link that has the focus keeps it, where it is there again. */
export function put(element, ...children) {
  const held = element.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const alike = () => [...element.querySelectorAll("a")].filter((each) => each.getAttribute("href") === held);
  const at = held === null ? -1 : alike().indexOf(document.activeElement);
  element.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  if (at >= 0) alike()[at]?.focus({ preventScroll: true });
  return element;
}

/* Set what differs only: a screen reader does not read again what is the same, and a selection stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function tile(title) {
  const value = h("b", {}, "–");
  const box = h("div", { class: "tile" }, value, h("span", {}, title));
  return { box, set: (text, rank = "") => { say(value, text); value.className = rank; } };
}

export function meter(share, rank = "") {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  return h("span", { class: "meter", "aria-hidden": "true" }, h("i", { class: rank, style: `width:${width.toFixed(1)}%` }));
}

/* A meter and its figure, which stand under each other in a column. */
export function gauge(share, rank, text) {
  return [meter(share, rank), h("span", { class: "figure" }, text)];
}

/* A table that draws only the rows in sight: a thousand models cost as much as forty. `columns`: title, cell
   (row) => node or text, by (row) => what to sort by, and left or spare as classes. */
export class Table {
  constructor(label, columns, key) {
    this.columns = columns;
    this.key = key;
    this.rows = [];
    this.sorted = { at: 0, down: false };
    this.height = 31;
    this.body = h("tbody");
    this.heads = columns.map((column, at) => h("th", { class: classes(column), scope: "col" },
      column.by ? h("button", { type: "button", onclick: () => this.sort(at) }, column.title) : column.title));
    const table = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, onscroll: () => this.draw() }, table);
  }

  sort(at, down = this.sorted.at === at && !this.sorted.down) {
    this.sorted = { at, down };
    this.heads.forEach((head, place) => {
      if (place === at) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.set(this.rows);
  }

  set(rows) {
    const by = this.columns[this.sorted.at].by || this.key;
    const turn = this.sorted.down ? -1 : 1;
    this.rows = [...rows].sort((a, b) => {
      const [x, y] = [by(a), by(b)];
      return turn * (x < y ? -1 : x > y ? 1 : 0) || (this.key(a) < this.key(b) ? -1 : 1);
    });
    this.draw();
  }

  draw() {
    const few = this.rows.length <= 60;
    const from = few ? 0 : Math.max(0, Math.floor(this.box.scrollTop / this.height) - 5);
    const count = few ? this.rows.length : Math.ceil((this.box.clientHeight || 600) / this.height) + 10;
    const shown = this.rows.slice(from, from + count);
    const rows = shown.map((row) => h("tr", {}, this.columns.map((column) => h("td", { class: classes(column) }, column.cell(row)))));
    const above = from * this.height;
    const below = Math.max(0, (this.rows.length - from - shown.length) * this.height);
    put(this.body, above ? filler(above) : null, rows, below ? filler(below) : null);
    if (rows.length && rows[0].offsetHeight) this.height = rows[0].offsetHeight;
  }
}

function filler(height) {
  return h("tr", { class: "filler", "aria-hidden": "true" }, h("td", { style: `height:${height}px` }));
}

function classes(column) {
  return [column.left ? "left" : "", column.spare ? "spare" : ""].join(" ").trim() || false;
}
