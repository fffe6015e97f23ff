// Measures a page in the browser: [text, what is wrong with it] for text that is hard to read.
// Contrast: that of WCAG 2 between text and background is below 4.5, or 3 for large text.
// Overlap: boxes of two texts share more than a pixel's breadth and a quarter of the lower one's
// height, or half in charts, whose boxes are higher than their digits.
(() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const pixel = colours => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
    }
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const luminance = rgb => {
    const [r, g, b] = rgb.map(value => value / 255).map(
      value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ancestors = element => {
    const all = [];
    for (let one = element; one; one = one.parentElement) all.unshift(one);
    return all;
  };
  // The part of a box that the ancestors of an element, which may scroll, show.
  const shown = (box, element) => {
    let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom];
    for (const one of ancestors(element).slice(2)) {  // after html and body
      if (getComputedStyle(one).overflow === "visible") continue;
      const edge = one.getBoundingClientRect();
      [left, top] = [Math.max(left, edge.left), Math.max(top, edge.top)];
      [right, bottom] = [Math.min(right, edge.right), Math.min(bottom, edge.bottom)];
    }
    return right - left > 1 && bottom - top > 1 && right > 0 ? {left, top, right, bottom} : null;
  };
  const wrong = [], boxes = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, noscript, option, nav")) continue;
    if (!element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const parts = [...range.getClientRects()].map(box => shown(box, element)).filter(box => box);
    if (!parts.length) continue;
    const name = node.data.trim().slice(0, 60);
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    boxes.push(...parts.map(box => ({...box, name, most: svg ? 0.5 : 0.25})));
    const below = ["white", ...ancestors(element).map(
      one => getComputedStyle(one).backgroundColor)];
    const ink = pixel([...below, svg ? style.fill : style.color]), paper = pixel(below);
    const [dark, light] = [luminance(ink), luminance(paper)].sort((a, b) => a - b);
    const contrast = (light + 0.05) / (dark + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) wrong.push([name, `contrast ${contrast.toFixed(2)}`]);
  }
  boxes.sort((a, b) => a.top - b.top);
  boxes.forEach((one, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j].top < one.bottom - 1; ++j) {
      const other = boxes[j];
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - other.top;
      const part = down / Math.min(one.bottom - one.top, other.bottom - other.top);
      if (across > 1 && part > Math.max(one.most, other.most)) wrong.push([one.name, `overlaps ${other.name}`]);
    }
  });
  return wrong.slice(0, 20);
})()
