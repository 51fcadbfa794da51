// What is wrong to the eye: text too near its ground (WCAG 2.2, 1.4.3), blocks that are cut off or overlap.
(least) => {
  const faults = [];
  const channels = (text) => text.match(/[\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((each) => each / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, alpha = 1] = channels(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const seen = (node) => { const box = node.getBoundingClientRect(); return box.width > 0 && box.height > 0; };
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
    if (!own || !seen(node) || node.closest("svg, .uplot, [aria-hidden=true]")) continue;
    const [a, b] = [light(channels(getComputedStyle(node).color).slice(0, 3)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least) faults.push(`contrast ${ratio.toFixed(1)} of "${node.textContent.trim().slice(0, 30)}"`);
  }
  const inner = document.querySelector("main").firstElementChild;
  const blocks = [...inner.children].filter(seen);
  if (!blocks.length) faults.push("nothing is there");
  for (const [place, node] of blocks.entries()) {
    const box = node.getBoundingClientRect();
    if (box.left < -1 || box.right > innerWidth + 1) faults.push(`${node.tagName} ${node.className} is cut off`);
    for (const other of blocks.slice(place + 1)) {
      const beside = other.getBoundingClientRect();
      const wide = Math.min(box.right, beside.right) - Math.max(box.left, beside.left);
      const high = Math.min(box.bottom, beside.bottom) - Math.max(box.top, beside.top);
      if (wide > 2 && high > 2) faults.push(`${node.tagName} ${node.className} and ${other.tagName} ${other.className} overlap`);
    }
  }
  return faults;
}
