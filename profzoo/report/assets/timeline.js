// One step on a canvas: ranges and calls of the CPU, the GPU's streams by class, why the GPU idles, and tracks: values
// over time, or spans with labels.
page.timeline = (home, data) => {
  const {make} = page, names = data.names, classes = data.classes, causes = page.data.causes, lane = 22, tall = 34;
  const colour = (kind, name, place) => kind === "gpu" ? page.data.classes[classes[place]] || page.data.step.copy : kind === "range" ? page.data.parts[name] || "#8a949e" : /Synchronize/.test(name) ? page.data.step["idle: synchronisation"] : "#8a949e";
  const tracks = [];
  const add = (label, kind, rows, of) => {
    let before = 0;
    const spans = rows.map(row => ({at: row[0], ns: row[1], name: of ? of(row) : names[row[2]], colour: kind === "gap" ? page.data.step[causes[row[2]]] : colour(kind, names[row[2]], row[2]), what: kind === "gpu" ? classes[row[2]] : "", merged: row[3] || 1})).sort((a, b) => a.at - b.at);
    for (const span of spans) { before = Math.max(before, span.at + span.ns); span.until = before; span.sought = true; }
    tracks.push({label, spans, high: lane});
  };
  add("CPU: parts", "range", data.ranges.filter(row => names[row[2]] !== "step"));
  add("CPU: calls", "call", data.calls);
  for (const [stream, rows] of Object.entries(data.streams)) add(`GPU: stream ${stream}`, "gpu", rows);
  add("GPU idle", "gap", data.gaps, row => causes[row[2]]);
  const amount = (value, unit) => unit === "%" ? `${Number(value.toPrecision(3))} %` : unit === "bytes" ? page.scaled(value, "B") : page.scaled(value, unit);
  for (const track of data.tracks || []) {
    const {name, unit, top, peak, labels, colours} = track;
    let before = 0;
    const spans = track.spans.map(([at, ns, value, label]) => ({at, ns, value, name: labels[label] || name, colour: colours[label], what: value === null ? "" : amount(value, unit), merged: 1, until: before = Math.max(before, at + ns), sought: labels[label] !== ""}));
    tracks.push({label: name, spans, top, most: peak === null ? "" : `peak ${amount(peak, unit)}`, high: top === null ? lane : tall});
  }
  let below = 4;
  for (const track of tracks) { track.y = below; below += track.high + 6; }
  // Room for the names of tracks: enough for the longest, and at most a third of the picture.
  const height = below + 22;
  let left = 104;
  const canvas = make("canvas", {tabindex: "0", role: "img", class: "timeline", "aria-label": `timeline of step ${data.step} of ${data.steps}, ${page.duration(data.ns)}: ${tracks.map(track => `${track.label} ${track.spans.length}`).join(", ")}; keys + and - zoom, arrows move, 0 shows all`});
  const search = make("input", {type: "search", placeholder: "search the step", "aria-label": "search the step"}), said = make("small", {"aria-live": "polite"});
  const button = (text, label, act) => { const made = make("button", {type: "button", "aria-label": label}, text); made.addEventListener("click", act); return made; };
  let from = 0, to = data.ns, words = "", found = [], place = -1, drag = null;
  const draw = () => {
    const wide = canvas.clientWidth || 800, ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), rule = style.getPropertyValue("--line"), paper = style.getPropertyValue("--paper");
    if (canvas.width !== Math.round(wide * ratio)) { canvas.width = Math.round(wide * ratio); canvas.height = Math.round(height * ratio); canvas.style.height = `${height}px`; }
    const pen = canvas.getContext("2d"), x = ns => left + (ns - from) / (to - from) * (wide - left);
    // A name that does not fit is cut where the rest of it still says something, and else left out.
    const fitted = (name, room) => { const width = pen.measureText(name).width; return width <= room ? name : room > 60 ? `${name.slice(0, Math.floor(name.length * room / width) - 1)}…` : ""; };
    pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
    left = Math.max(104, Math.min(wide / 3, Math.ceil(Math.max(...tracks.map(track => pen.measureText(track.label).width))) + 10));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = paper; pen.fillRect(0, 0, wide, height);
    const step = 10 ** Math.floor(Math.log10((to - from) / 4)), mark = [1, 2, 5, 10, 20].map(times => times * step).find(ns => (to - from) / ns <= Math.min(9, (wide - left) / 56)) || step * 20;
    for (let ns = Math.ceil(from / mark) * mark; ns <= to; ns += mark) { pen.fillStyle = rule; pen.fillRect(x(ns), 0, 1, height - 20); pen.fillStyle = soft; pen.textAlign = "center"; pen.fillText(page.duration(ns), Math.min(Math.max(x(ns), left + 20), wide - 24), height - 9); }
    tracks.forEach(track => {
      const y = track.y, lane = track.high;
      pen.textAlign = "left"; pen.fillStyle = ink; pen.fillText(fitted(track.label, left - 6), 0, y + (track.most ? lane / 2 - 7 : lane / 2));
      if (track.most) { pen.fillStyle = soft; pen.fillText(fitted(track.most, left - 6), 0, y + lane / 2 + 7); pen.fillStyle = rule; pen.fillRect(left, y + lane, wide - left, 1); }
      pen.save(); pen.beginPath(); pen.rect(left, y, wide - left, lane); pen.clip();
      let low = 0, high = track.spans.length;
      while (low < high) { const middle = (low + high) >> 1; if (track.spans[middle].until < from) low = middle + 1; else high = middle; }
      for (let index = low; index < track.spans.length && track.spans[index].at <= to; index++) {
        const span = track.spans[index], start = x(span.at), long = Math.max(x(span.at + span.ns) - start, 0.6), hit = !words || !span.sought || span.name.toLowerCase().includes(words);
        if (track.most && span.value !== null) { const rise = Math.min(span.value / (track.top || 1), 1) * lane; const edge = at => Math.round(at * ratio) / ratio; pen.globalAlpha = 1; pen.fillStyle = span.colour; pen.fillRect(edge(start), y + lane - rise, Math.max(edge(start + long) - edge(start), 1 / ratio), rise); continue; }
        pen.globalAlpha = hit ? 1 : 0.13; pen.fillStyle = span.colour; pen.fillRect(start, y, long - (long > 3 ? 0.7 : 0), lane);
        if (found[place] === span) { pen.strokeStyle = ink; pen.lineWidth = 2; pen.strokeRect(start, y + 1, Math.max(long, 3), lane - 2); }
        if (long > 34) { const red = parseInt(span.colour.slice(1, 3), 16), green = parseInt(span.colour.slice(3, 5), 16), blue = parseInt(span.colour.slice(5, 7), 16); pen.fillStyle = 0.2126 * red + 0.7152 * green + 0.0722 * blue < 115 ? "#fff" : "#000"; const seen = Math.max(start, left) + 4; pen.fillText(fitted(span.name, Math.min(start + long, wide) - seen - 2), seen, y + lane / 2); }
      }
      pen.restore(); pen.globalAlpha = 1;
    });
  };
  const show = (a, b) => { const span = Math.min(Math.max(b - a, 500), data.ns); from = Math.max(0, Math.min(a, data.ns - span)); to = from + span; draw(); };
  const zoom = (times, at = (from + to) / 2) => show(at - (at - from) * times, at + (to - at) * times);
  const time = event => from + (event.offsetX - left) / (canvas.clientWidth - left) * (to - from);
  const under = event => {
    const track = tracks.find(one => event.offsetY >= one.y - 2 && event.offsetY < one.y + one.high + 4), at = time(event), near = (to - from) / canvas.clientWidth;
    return track && event.offsetX >= left ? track.spans.filter(span => span.at - near <= at && at <= span.at + span.ns + near).sort((a, b) => a.ns - b.ns)[0] : null;
  };
  canvas.addEventListener("wheel", event => { if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return; event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event)); }, {passive: false});
  canvas.addEventListener("pointerdown", event => { drag = {x: event.clientX, from, to}; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointermove", event => {
    if (drag) { const moved = (drag.x - event.clientX) / (canvas.clientWidth - left) * (drag.to - drag.from); show(drag.from + moved, drag.to + moved); return; }
    const span = under(event);
    page.tip(event, span && [span.name, [span.what, span.merged > 1 ? `${span.merged} neighbours, drawn as one` : ""].filter(Boolean).join(", "), `${page.duration(span.ns)}, from ${page.duration(span.at)} on`].filter(Boolean));
  });
  canvas.addEventListener("pointerleave", () => page.tip());
  canvas.addEventListener("dblclick", event => zoom(0.4, time(event)));
  canvas.addEventListener("keydown", event => {
    const part = (to - from) / 6, act = {"+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4), ArrowLeft: () => show(from - part, to - part), ArrowRight: () => show(from + part, to + part), 0: () => show(0, data.ns)}[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  const next = step => {
    if (!found.length) return;
    place = (place + step + found.length) % found.length;
    const span = found[place], half = Math.max(span.ns * 6, (to - from) / 12);
    show(span.at + span.ns / 2 - half, span.at + span.ns / 2 + half);
    said.textContent = `${place + 1} of ${found.length}`;
  };
  search.addEventListener("input", () => {
    words = search.value.trim().toLowerCase(); place = -1;
    found = words ? tracks.flatMap(track => track.spans.filter(span => span.sought && span.name.toLowerCase().includes(words))).sort((a, b) => a.at - b.at) : [];
    said.textContent = words ? `${found.length} found, ${page.duration(found.reduce((sum, span) => sum + span.ns, 0))}: Enter shows the next` : "";
    draw();
  });
  search.addEventListener("keydown", event => { if (event.key === "Enter") next(event.shiftKey ? -1 : 1); });
  const lost = causes.map((name, code) => [name, data.gaps.filter(gap => gap[2] === code).reduce((sum, gap) => sum + gap[1], 0)]).filter(([, ns]) => ns > 0);
  const key = lost.map(([name, ns]) => { const dot = make("b", {class: "mark"}); dot.style.background = page.data.step[name]; return make("span", {}, dot, `${name} ${page.duration(ns)}`); });
  home.replaceChildren(make("div", {class: "tools"}, search, button("+", "zoom in", () => zoom(0.6)), button("−", "zoom out", () => zoom(1.6)), button("all", "show the whole step", () => show(0, data.ns)), said), canvas,
    make("p", {class: "key"}, `Step ${data.step} of ${data.steps} as nsys traced it, which slows the CPU down. Idle time of the GPU:`, ...key.flatMap(one => [" ", one])),
    ...(data.not_collected || []).length ? [make("p", {class: "key"}, data.not_collected.map(line => `${line[0].toUpperCase()}${line.slice(1)}.`).join(" "))] : []);
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  return {search: text => { search.value = text; search.dispatchEvent(new Event("input")); next(1); }};
};
