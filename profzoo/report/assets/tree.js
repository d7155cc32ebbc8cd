// The tree of modules, or of ranges: time of each, both directions together, as nested details that are filled when
// opened. split: what joins the names in a path; ranges are shown without GPU time as well.
page.tree = (home, packed, split = ".") => {
  const nodes = new Map(), {make} = page, colours = page.data.parts;
  for (const row of page.rows(packed)) {
    const node = nodes.get(row.name) || {name: row.name, parent: row.parent, type: row.type, ns: 0, own: 0, share: 0, parts: []};
    node.ns += row.ns; node.own += row.own; node.share += row.share; node.parts.push(row);
    nodes.set(row.name, node);
  }
  const children = new Map(), whole = (nodes.get("(step)") || {ns: 0}).ns || Math.max(...[...nodes.values()].map(node => node.ns));
  for (const node of nodes.values()) if (node.name !== "(step)") { const parent = nodes.has(node.parent) ? node.parent : "(step)"; children.set(parent, [...(children.get(parent) || []), node]); }
  const line = node => {
    const bar = make("span", {class: "tree-bar", role: "img", "aria-label": node.parts.map(part => `${part.direction} ${page.duration(part.ns)}`).join(", "), title: node.parts.map(part => `${part.direction} ${page.duration(part.ns)}${part.bound ? `, bound by ${page.shown("bound", part.bound)}, ${page.shown("efficiency", part.efficiency)} of its roof` : ""}${part.divided ? `, ${page.percent(part.divided)} of its own time is divided from kernels that compute more` : ""}`).join("\n")});
    for (const part of node.parts) { const piece = make("i", {class: "mark"}); piece.style.width = `${100 * part.ns / whole}%`; piece.style.background = colours[part.direction] || "#888"; bar.append(piece); }
    const short = node.name.startsWith("(") ? node.name : node.name.split(split).pop();
    return [make("span", {class: "tree-name", title: node.name}, short, make("small", {}, node.type || "")), bar, make("span", {class: "tree-number"}, page.duration(node.ns)), make("span", {class: "tree-number"}, page.percent(node.share))];
  };
  const fill = (list, parent) => list.append(...(children.get(parent) || []).filter(node => node.ns > 0 || split !== ".").sort((a, b) => b.ns - a.ns).map(node => {
    const more = children.has(node.name), item = make("li");
    if (!more) { item.append(make("div", {class: "tree-line leaf"}, ...line(node))); return item; }
    const inner = make("ul"), one = make("details", {}, make("summary", {class: "tree-line"}, ...line(node)), inner);
    one.addEventListener("toggle", () => { if (one.open && !inner.childElementCount) fill(inner, node.name); });
    if (node.name === "(root)" || node.share > 0.5) one.open = true;
    item.append(one);
    return item;
  }));
  const list = make("ul", {class: "tree"});
  fill(list, "(step)");
  home.replaceChildren(list);
};
