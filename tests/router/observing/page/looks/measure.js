// What the page looks like, in figures: its boxes, the contrast of its text and edges, and what lies wrong.
() => {
  const BOXES = "header, nav a, #find input, #state, h2, .tile, .panel, .scroll, .gpu, .gpu table, .seat, .strip, .box, .timeline, .meter, main button, main input, ul.plain li, thead th, .uplot";
  const EDGED = ".tile, .panel, .scroll, .gpu, .seat, .box, header";
  const APART = "header, h2, .tile, .panel, .scroll, .gpu, .seat, .box, ul.plain, .timeline";

  const rgb = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return [red, green, blue, alpha];
  };
  const over = ([red, green, blue, alpha], under) => [red, green, blue].map((each, at) => each * alpha + under[at] * (1 - alpha));
  const backOf = (element) => element ? over(rgb(getComputedStyle(element).backgroundColor), backOf(element.parentElement)) : [255, 255, 255];
  // WCAG 2.2: relative luminance and contrast ratio.
  const luminance = (color) => color.map((each) => each / 255).map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4).reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (one, other) => {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return Math.round((high + 0.05) / (low + 0.05) * 100) / 100;
  };
  const opacity = (element) => element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1;
  const seen = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 1;
  const place = (element) => {
    const { x, y, width, height } = element.getBoundingClientRect();
    return [x, y + window.scrollY, width, height].map(Math.round);
  };
  const kind = (element) => element.tagName.toLowerCase() + [...element.classList].map((each) => `.${each}`).join("");
  const name = (element) => `${kind(element)} ${(element.getAttribute("aria-label") || element.innerText || element.placeholder || "").replace(/\s+/g, " ").trim().slice(0, 32)}`.trim();

  const boxes = {}, counts = {};
  for (const element of [...document.querySelectorAll(BOXES)].filter(seen)) {
    const own = name(element);
    counts[own] = (counts[own] || 0) + 1;
    const style = getComputedStyle(element);
    const around = backOf(element.parentElement);
    const edge = element.matches(EDGED) && style.borderBottomStyle !== "none" ? contrast(over(rgb(style.borderBottomColor), around), around) : 0;
    boxes[counts[own] > 1 ? `${own} #${counts[own]}` : own] = [...place(element), edge];
  }

  const faint = new Set();
  for (const element of [...document.querySelectorAll("body *")].filter(seen)) {
    if (![...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim()) || element.matches(":disabled")) continue;
    const [red, green, blue, alpha] = rgb(getComputedStyle(element).color);
    const back = backOf(element);
    const ratio = contrast(over([red, green, blue, alpha * opacity(element)], back), back);
    if (ratio < 4.5) faint.add(`${name(element)} has a contrast of ${ratio}`);
  }

  const apart = [...document.querySelectorAll(APART)].filter(seen);
  const overlaps = [], outside = [];
  const scrolled = (element) => element.parentElement.closest(".scroll, .some");
  apart.forEach((one, at) => {
    const a = one.getBoundingClientRect();
    if (a.right > window.innerWidth + 1 || a.left < -1) outside.push(name(one));
    for (const other of apart.slice(at + 1)) {
      if (one.contains(other) || other.contains(one) || scrolled(one) || scrolled(other)) continue;
      const b = other.getBoundingClientRect();
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1) overlaps.push(`${name(one)} and ${name(other)}`);
    }
  });
  return { boxes, faint: [...faint], overlaps, outside };
}
