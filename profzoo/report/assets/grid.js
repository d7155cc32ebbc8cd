// Tables of many rows, of which only those in view are drawn; and what tables, rooflines and timelines share.
page.data = JSON.parse((document.getElementById("page-data") || {textContent: "{}"}).textContent);
page.make = (tag, attributes = {}, ...children) => {
  const svg = ["svg", "g", "circle", "line", "path", "text", "title", "rect"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
page.duration = ns => {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (ns >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  return `${Math.round(ns)} ns`;
};
page.scaled = (value, unit) => {
  for (const [prefix, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (value >= size) return `${Number((value / size).toPrecision(3))} ${prefix}${unit}`;
  return `${Number(value.toPrecision(3))} ${unit}`;
};
page.percent = value => `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;
page.bounds = {dram: "DRAM", l2: "L2", simt: "SIMT", tensor: "tensor cores"};
page.shown = (column, value) => {
  if (value === null || value === "" || value === undefined) return "–";
  if (column === "ns" || column === "own") return page.duration(value);
  if (["share", "efficiency", "occupancy", "occupancy_limit", "l2_hit"].includes(column)) return page.percent(value);
  if (column === "bytes") return page.scaled(value, "B");
  if (column === "flop") return page.scaled(value, "flop");
  if (column === "bound") return page.bounds[value] || value;
  return typeof value === "number" ? value.toLocaleString("en") : value;
};
page.heads = {name: "name", ns: "time per step", share: "share", occupancy: "occupancy", occupancy_limit: "occupancy limit", efficiency: "efficiency", bytes: "DRAM bytes", flop: "operations", l2_hit: "L2 hits", own: "own time"};
page.rows = packed => {
  const columns = Object.keys(packed), [first] = columns, count = (packed[first].places || packed[first]).length;
  return Array.from({length: count}, (_, index) => Object.fromEntries(columns.map(name => [name, packed[name].places ? packed[name].words[packed[name].places[index]] : packed[name][index]])));
};

const tip = page.make("div", {class: "tip", role: "tooltip", hidden: ""});
document.body.append(tip);
page.tip = (event, lines) => {
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line, index) => page.make(index ? "div" : "b", {}, line)));
  const x = event.clientX, y = event.clientY, box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
};

// rows: objects; columns: their keys in order; chosen: called with the place of the row that a reader chooses.
page.grid = (home, label, rows, columns, chosen) => {
  const height = 26, texts = columns.filter(name => rows.some(row => typeof row[name] === "string" && row[name]));
  const kept = columns.filter(name => rows.some(row => row[name] !== null && row[name] !== "" && row[name] !== undefined));
  const widths = kept.map(name => name === "name" ? "var(--name, minmax(250px, 3fr))" : name === "ns" ? "minmax(118px, 1fr)" : texts.includes(name) ? "minmax(98px, 1fr)" : "minmax(88px, .8fr)").join(" ");
  const search = page.make("input", {type: "search", placeholder: "search", "aria-label": `search ${label}`}), count = page.make("small", {"aria-live": "polite"});
  const head = page.make("div", {role: "row", class: "grid-head"}), body = page.make("div", {class: "grid-body", role: "rowgroup"});
  const view = page.make("div", {class: "grid", role: "grid", tabindex: "0", "aria-label": label, "aria-rowcount": rows.length + 1}, page.make("div", {role: "rowgroup", class: "grid-top"}, head), body);
  home.replaceChildren(page.make("div", {class: "tools"}, search, count), view);
  view.style.setProperty("--widths", widths);
  view.style.setProperty("--wide", `${190 + kept.length * 96}px`);
  let order = rows.map((_, index) => index), by = "ns", down = true, current = -1;
  const draw = () => {
    const from = Math.max(0, Math.floor(view.scrollTop / height) - 8), to = Math.min(order.length, from + Math.ceil(view.clientHeight / height) + 18);
    body.replaceChildren(...order.slice(from, to).map((index, place) => {
      const row = page.make("div", {role: "row", class: `grid-row${index === current ? " current" : ""}`, "aria-rowindex": from + place + 2, "aria-selected": index === current, "data-row": index},
        ...kept.map(name => page.make("span", {role: "gridcell", class: texts.includes(name) ? "text" : null, title: name === "name" ? rows[index][name] : null}, page.shown(name, rows[index][name]))));
      row.style.top = `${(from + place) * height}px`;
      return row;
    }));
    body.style.height = `${order.length * height}px`;
  };
  const sort = () => order.sort((a, b) => {
    const x = rows[a][by] ?? "", y = rows[b][by] ?? "";
    if (x === "" || y === "") return (x === "") - (y === "");
    return (x < y ? -1 : x > y ? 1 : a - b) * (down ? -1 : 1);
  });
  const find = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    order = rows.map((_, index) => index).filter(index => words.every(word => texts.some(name => String(rows[index][name]).toLowerCase().includes(word))));
    const ns = order.reduce((sum, index) => sum + (rows[index].ns || 0), 0);
    count.textContent = `${order.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows, ${page.duration(ns)}`;
    sort(); view.scrollTop = 0; draw();
  };
  for (const name of kept) {
    const button = page.make("button", {type: "button", title: (page.data.titles || {})[name] ?? null}, page.heads[name] || name), cell = page.make("span", {role: "columnheader", class: texts.includes(name) ? "text" : null, "aria-sort": name === by ? "descending" : "none"}, button);
    button.addEventListener("click", () => {
      down = by === name ? !down : !texts.includes(name); by = name;
      for (const other of head.children) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(); draw();
    });
    head.append(cell);
  }
  const choose = (index, tell = true) => {
    current = index;
    const place = order.indexOf(index), top = place * height;
    if (place >= 0 && (top < view.scrollTop || top > view.scrollTop + view.clientHeight - 3 * height)) view.scrollTop = Math.max(0, top - view.clientHeight / 3);
    draw();
    if (tell) chosen(index);
  };
  body.addEventListener("click", event => { const row = event.target.closest("[data-row]"); if (row) choose(Number(row.dataset.row)); });
  view.addEventListener("keydown", event => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!step || event.target !== view || !order.length) return;
    event.preventDefault();
    choose(order[Math.max(0, Math.min(order.length - 1, order.indexOf(current) + step))]);
  });
  view.addEventListener("scroll", draw, {passive: true});
  search.addEventListener("input", find);
  find();
  return {choose: index => choose(index, false), search: words => { search.value = words; find(); }};
};
