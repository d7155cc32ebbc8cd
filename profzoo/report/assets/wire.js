// Rows of a timeline from their columns (profzoo/report/timeline_data.py): a start is counted from the end before it.
page.unfold = step => {
  const rows = ([starts, ...others]) => {
    let end = 0;
    return (starts || []).map((start, index) => { const row = [end + start * step.grain, ...others.map(column => column[index])]; end = row[0] + row[1]; return row; });
  };
  const streams = Object.fromEntries(Object.entries(step.streams).map(([name, packed]) => [name, rows(packed)]));
  return {...step, streams, ranges: rows(step.ranges), calls: rows(step.calls), gaps: rows(step.gaps), tracks: step.tracks.map(track => ({...track, spans: rows(track.spans)}))};
};
// Builds what a cell shows when it is first opened, and links its parts with each other.
page.build = async cell => {
  const block = cell.querySelector("script.data");
  if (!block || cell.dataset.built || !globalThis.DecompressionStream) return;
  cell.dataset.built = "yes";
  const data = JSON.parse(await page.unpack(block)), home = cell.querySelector(".live"), {make} = page;
  const part = title => { const inner = make("div"); home.append(make("h3", {}, title), inner); return inner; };
  const sets = {}, cpu = data.clock === "cpu";
  if (data.kernels) sets["launch configurations"] = [page.rows(data.kernels), ["name", "ns", "share", "class", "bound", "efficiency", "occupancy", "occupancy_limit", "range", "grid", "block", "launches", "bytes", "flop", "l2_hit", "registers"]];
  if (data.layers && cpu) sets.layers = [page.rows(data.layers).map(row => ({...row, calls: row.launches})), ["name", "ns", "share", "type", "direction", "calls"]];
  else if (data.layers) sets.layers = [page.rows(data.layers), ["name", "ns", "share", "type", "direction", "bound", "efficiency", "launches", "bytes", "flop"]];
  const kinds = Object.keys(sets);
  let timeline = null;
  if (data.timeline) timeline = page.timeline(part("A typical step"), page.unfold(data.timeline));
  if (kinds.length) {
    const inner = part(cpu ? "Where the CPU's time goes, under the profiler" : "Where the GPU's time goes"), roof = make("div", {class: "roof-home", tabindex: "0", role: "region", "aria-label": "roofline"}), table = make("div", {class: "grid-home"}), choice = make("div", {class: "tools", role: "radiogroup", "aria-label": "what a point and a row is"});
    const show = kind => {
      const [rows, columns] = sets[kind];
      let grid = null;
      const plot = cpu ? {choose: () => {}} : page.roofline(roof, rows, index => grid.choose(index));
      grid = page.grid(table, `${kind} of ${cell.id}`, rows, columns, index => { plot.choose(index); if (timeline && kind !== "layers") timeline.search(rows[index].name); });
    };
    for (const kind of kinds) {
      const box = make("input", {type: "radio", name: `kind-${cell.id}`, value: kind});
      box.checked = kind === kinds[0];
      box.addEventListener("change", () => show(kind));
      choice.append(make("label", {}, box, ` ${kind}`));
    }
    inner.append(...(cpu ? [table] : [choice, make("div", {class: "beside"}, roof, table)]));
    show(kinds[0]);
  }
  if (data.tree) page.tree(part(cpu ? "Modules, by their operators' own time under the profiler" : "Modules, by GPU time"), data.tree);
  if (data.ranges) page.tree(part(`The program's own ranges, by ${cpu ? "CPU" : "GPU"} time`), data.ranges, " > ");
};
