// Runs inside a copy of a report and writes the problems that it finds into the page, for
// --dump-dom to print: chart texts that overlap or stick out of their chart, text with too little
// contrast to its background, and a page that is wider than its window.
(() => {
  const problems = [];
  const area = (r) => Math.max(0, r.right - r.left) * Math.max(0, r.bottom - r.top);
  const overlap = (a, b) => area({
    left: Math.max(a.left, b.left), right: Math.min(a.right, b.right),
    top: Math.max(a.top, b.top), bottom: Math.min(a.bottom, b.bottom),
  });

  const channels = (color) => color.match(/[\d.]+/g).slice(0, 3).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((c) => {
      const s = c / 255;
      return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  // WCAG 2.1, contrast ratio.
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const background = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (color !== "transparent" && !color.startsWith("rgba(0, 0, 0, 0")) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const readable = (element, color, behind) => {
    const ratio = contrast(color, behind);
    if (ratio < 4.5) {
      problems.push(`contrast ${ratio.toFixed(2)}: "${element.textContent.slice(0, 40)}"`);
    }
  };

  let texts = 0;
  for (const svg of document.querySelectorAll("svg")) {
    const name = svg.querySelector("title").textContent;
    const frame = svg.getBoundingClientRect();
    if (area(frame) < 1) problems.push(`${name}: the chart has no size`);
    const boxes = [...svg.querySelectorAll("text")].map((t) => ({
      text: t.textContent, box: t.getBoundingClientRect(), element: t,
    }));
    texts += boxes.length;
    for (const { text, box } of boxes) {
      if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 ||
          box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5) {
        problems.push(`${name}: "${text}" is cut`);
      }
    }
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
      const common = overlap(a.box, b.box);
      if (common > 0.12 * Math.min(area(a.box), area(b.box))) {
        problems.push(`${name}: "${a.text}" and "${b.text}" overlap`);
      }
    }));
    for (const { element } of boxes) {
      const inside = element.classList.contains("inside");
      const behind = inside ? getComputedStyle(element.previousElementSibling).fill
        : background(svg);
      readable(element, getComputedStyle(element).fill, behind);
    }
  }
  for (const e of document.querySelectorAll("h1, h2, h3, p, th, td, dt, dd, li, footer")) {
    if (e.textContent.trim()) readable(e, getComputedStyle(e).color, background(e));
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) {
    problems.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
  }
  const result = document.createElement("pre");
  result.id = "measured";
  result.textContent = JSON.stringify({
    problems: [...new Set(problems)], texts, charts: document.querySelectorAll("svg").length,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
  });
  document.body.append(result);
})();
