// Says what of the page can be seen. The result is a JSON value: type observation in view_test.go.
(() => {
  const name = (element) => {
    const text = (element.textContent || "").replace(/\s+/g, " ").trim().slice(0, 40);
    return `${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""} ${JSON.stringify(text)}`;
  };

  // Colours, as WCAG 2 compares them.
  const parse = (text) => {
    const n = (text.match(/[\d.]+/g) || []).map(Number);
    return { r: n[0] || 0, g: n[1] || 0, b: n[2] || 0, a: n.length > 3 ? n[3] : 1 };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1,
  });
  const luminance = (c) => {
    const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(c.r) + 0.7152 * linear(c.g) + 0.0722 * linear(c.b);
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    if (!element) return { r: 255, g: 255, b: 255, a: 1 }; // the browser's own
    const own = parse(getComputedStyle(element).backgroundColor);
    return own.a === 1 ? own : over(own, ground(element.parentElement));
  };

  const texts = [];
  for (const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walker.nextNode(); ) {
    const node = walker.currentNode, element = node.parentElement;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!node.data.trim() || element.closest("title, desc, style, script") || !box.width) continue;
    const style = getComputedStyle(element), behind = ground(element);
    const colour = parse(element instanceof SVGElement ? style.fill : style.color);
    texts.push({ what: name(element), contrast: contrast(over(colour, behind), behind), x: box.left, width: box.width });
  }

  const bars = [...document.querySelectorAll("svg .bar")].map((bar) => {
    const style = getComputedStyle(bar), paint = style.fill.startsWith("url") ? style.stroke : style.fill;
    return contrast(parse(paint), ground(bar.closest("svg")));
  });

  return {
    width: document.documentElement.clientWidth,
    scrollWidth: document.documentElement.scrollWidth,
    wide: [...document.querySelectorAll("body *")]
      .filter((e) => !e.closest("defs, title, desc") && (e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5 || e.getBoundingClientRect().left < -0.5))
      .map(name),
    light: luminance(ground(document.documentElement)) > 0.5,
    bars,
    texts,
  };
})()
