// A roofline: one point per launch configuration or layer, as large as its time, below the roofs that were measured.
page.roofline = (home, rows, chosen) => {
  const {make} = page, peaks = page.data.peaks || {}, width = 760, height = 400, left = 62, right = 14, top = 14, bottom = 44;
  const points = rows.map((row, index) => ({row, index, x: row.flop / row.bytes, y: row.flop / row.ns * 1e9})).filter(point => point.x > 0 && point.y > 0 && isFinite(point.x));
  if (!points.length || !peaks.dram) { home.replaceChildren(make("p", {class: "lead"}, "Operations and bytes were not counted: collect ncu's section set survey or roofline.")); return {choose: () => {}}; }
  // Points that take next to no time do not stretch the axes; they lie at their edges.
  const byTime = [...points].sort((a, b) => b.row.ns - a.row.ns), whole = points.reduce((sum, point) => sum + point.row.ns, 0);
  let seen = 0;
  const heavy = byTime.filter(point => (seen += point.row.ns) - point.row.ns < 0.995 * whole);
  const tops = ["fp32", "tf32", "bf16", "fp16", "fp64"].filter(name => peaks[name]);
  const low = Math.floor(Math.log10(Math.max(Math.min(...heavy.map(point => point.x)), 1e-2))), high = Math.ceil(Math.log10(Math.max(...heavy.map(point => point.x), peaks[tops[0]] / peaks.dram * 4)));
  const most = Math.log10(Math.max(...tops.map(name => peaks[name]), ...points.map(point => point.y))) + 0.15, least = Math.max(Math.floor(Math.log10(Math.min(...heavy.map(point => point.y)))), most - 7.5);
  const x = value => left + (Math.log10(value) - low) / (high - low) * (width - left - right), y = value => top + (most - Math.log10(value)) / (most - least) * (height - top - bottom);
  const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `roofline of ${points.length} points`, class: "roofline"});
  for (let power = low; power <= high; power++) svg.append(make("line", {x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: height - bottom, class: "rule"}), make("text", {x: x(10 ** power), y: height - bottom + 16, "text-anchor": "middle"}, Number((10 ** power).toPrecision(1)).toString()));
  for (let power = Math.ceil(least); power <= most; power++) svg.append(make("line", {x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power), class: "rule"}), make("text", {x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end"}, page.scaled(10 ** power, "")));
  svg.append(make("text", {x: (left + width) / 2, y: height - 8, "text-anchor": "middle"}, "operations per byte of DRAM traffic (flop/B)"), make("text", {x: -(top + height - bottom) / 2, y: 13, transform: "rotate(-90)", "text-anchor": "middle"}, "rate (flop/s)"));
  const clip = (a, b) => [Math.max(a, 10 ** low), Math.min(b, 10 ** high)];
  const best = Math.max(...tops.map(name => peaks[name]));
  for (const [name, label] of [["dram", "DRAM"], ["l2", "L2"]]) if (peaks[name]) {
    const [from, to] = clip(10 ** least / peaks[name], best / peaks[name]);
    svg.append(make("line", {x1: x(from), y1: y(from * peaks[name]), x2: x(to), y2: y(to * peaks[name]), class: `roof ${name}`}, make("title", {}, `${label}, measured: ${page.scaled(peaks[name], "B/s")}`)));
    const at = from * (to / from) ** 0.3, slope = -Math.atan2(y(1 * peaks[name]) - y(10 * peaks[name]), x(10) - x(1)) * 180 / Math.PI;
    svg.append(make("text", {x: 0, y: -5, class: "roof-name", transform: `translate(${x(at)} ${y(at * peaks[name])}) rotate(${slope})`}, `${label} ${page.scaled(peaks[name], "B/s")}`));
  }
  const near = (one, other) => Math.abs(y(peaks[one]) - y(peaks[other])) < 6;
  const below = name => tops.some(other => !near(name, other) && y(peaks[other]) < y(peaks[name]) && y(peaks[name]) - y(peaks[other]) < 15);
  for (const name of tops) {
    // Roofs that lie on each other share a name.
    const same = tops.filter(other => near(name, other)), named = same[0] === name;
    // The name is above the highest of them, or below the lowest.
    const levels = same.map(other => y(peaks[other])), level = below(name) ? Math.max(...levels) + 12 : Math.min(...levels) - 4;
    const from = Math.max(peaks[name] / (peaks.l2 || peaks.dram), 10 ** low);
    svg.append(make("line", {x1: x(from), x2: width - right, y1: y(peaks[name]), y2: y(peaks[name]), class: "roof"}), make("text", {x: width - right, y: level, "text-anchor": "end", class: "roof-name"}, named ? same.map(other => `${other} ${page.scaled(peaks[other], "flop/s")}`).join(", ") : ""));
  }
  const longest = Math.max(...points.map(point => point.row.ns)), marks = new Map(), layer = make("g");
  for (const point of [...points].sort((a, b) => b.row.ns - a.row.ns)) {
    const {row, index} = point, lines = [row.name, [row.type, row.direction || row.range, row.class].filter(Boolean).join(", ")];
    if (row.grid) lines.push(`grid ${row.grid}, block ${row.block}, ${row.launches} launches per step`);
    lines.push(`${page.duration(row.ns)} per step, ${page.percent(row.share)} of the GPU's time`, `${page.scaled(row.bytes, "B")}, ${page.scaled(row.flop, "flop")}, ${Number(point.x.toPrecision(3))} flop/B`);
    lines.push(`bound by ${page.shown("bound", row.bound)}, ${page.shown("efficiency", row.efficiency)} of its roof${row.occupancy ? `, occupancy ${page.percent(row.occupancy)} of ${page.shown("occupancy_limit", row.occupancy_limit)}` : ""}`);
    const mark = make("circle", {cx: x(Math.min(Math.max(point.x, 10 ** low), 10 ** high)), cy: y(Math.max(point.y, 10 ** least)), r: 2.5 + 17 * Math.sqrt(row.ns / longest), fill: page.data.classes[row.class] || page.data.parts[row.direction] || "#888", class: "mark"}, make("title", {}, lines.join("\n")));
    mark.addEventListener("mousemove", event => page.tip(event, lines));
    mark.addEventListener("mouseleave", () => page.tip());
    mark.addEventListener("click", () => { choose(index); chosen(index); });
    marks.set(index, mark);
    layer.append(mark);
  }
  svg.append(layer);
  const key = [...new Set(points.map(point => point.row.class || point.row.direction))].filter(Boolean).map(name => {
    const dot = make("b", {class: "mark"});
    dot.style.background = page.data.classes[name] || page.data.parts[name];
    return make("span", {}, dot, name);
  });
  const left_out = rows.length - points.length;
  home.replaceChildren(svg, make("p", {class: "key"}, ...key, left_out ? make("br") : "", left_out ? `${left_out} of ${rows.length} are not drawn: they have no operations, or were not counted.` : ""));
  const choose = index => {
    for (const mark of marks.values()) mark.classList.remove("current");
    const mark = marks.get(index);
    if (mark) { mark.classList.add("current"); layer.append(mark); }
  };
  return {choose};
};
