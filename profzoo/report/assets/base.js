// What the reader chose, kept in the address: #place&sort=table:column:-&filter=table:words&open=a,b&columns=0,1
"use strict";
const page = {};
globalThis.page = page;
document.documentElement.classList.add("scripted");

page.read = () => {
  const [place, ...rest] = location.hash.slice(1).split("&");
  return {place: decodeURIComponent(place), chosen: new URLSearchParams(rest.join("&"))};
};
page.chosen = page.read().chosen;
page.write = () => {
  const words = page.chosen.toString();
  history.replaceState(null, "", `#${encodeURIComponent(page.read().place)}${words ? `&${words}` : ""}`);
};
page.choose = (key, value) => {
  if (value === "") page.chosen.delete(key); else page.chosen.set(key, value);
  page.write();
};

page.sort = (head, down) => {
  const table = head.closest("table"), column = head.cellIndex, body = table.tBodies[0];
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = row => {
    const value = row.cells[column].dataset.value, number = Number(value);
    return value === "" ? null : Number.isNaN(number) ? value.toLowerCase() : number;
  };
  // What was not measured stays last, whichever way the rest is sorted.
  const order = ([x], [y]) => x === null || y === null ? (x === null) - (y === null) : (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  body.append(...[...body.rows].map(row => [key(row), row]).sort(order).map(([, row]) => row));
};
page.filter = input => {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean), rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
  for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  const count = document.getElementById(`${input.dataset.table}-count`), shown = rows.filter(row => !row.hidden).length;
  if (count) count.textContent = words.length ? `${shown} of ${rows.length}` : "";
};
page.columns = () => {
  const boxes = [...document.querySelectorAll("[data-column]")], hidden = boxes.filter(box => !box.checked);
  document.getElementById("hidden-columns").textContent = hidden.length ? `${hidden.map(box => `#table-cells tr > :nth-child(${1 + Number(box.dataset.column)})`).join(", ")} { display: none; }` : "";
  return boxes.filter(box => box.checked).map(box => box.dataset.column).join(",");
};

for (const head of document.querySelectorAll("th.sort")) {
  const sort = () => {
    const down = head.getAttribute("aria-sort") === "ascending" || (!head.hasAttribute("aria-sort") && "down" in head.dataset);
    page.sort(head, down);
    page.choose(`sort.${head.closest("table").id}`, `${head.cellIndex}${down ? "-" : ""}`);
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
}
for (const input of document.querySelectorAll("input.filter")) input.addEventListener("input", () => {
  page.filter(input);
  page.choose(`filter.${input.dataset.table}`, input.value.trim());
});
for (const box of document.querySelectorAll("[data-column]")) box.addEventListener("change", () => page.choose("columns", page.columns()));
for (const button of document.querySelectorAll("button.copy")) button.addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(button.dataset.text); button.textContent = "copied"; }
  catch { getSelection().selectAllChildren(button.previousElementSibling); button.textContent = "selected"; }
  setTimeout(() => { button.textContent = "copy"; }, 1500);
});
// Text of a packed block (profzoo/report/packed_blocks.py).
page.unpack = block => {
  const bytes = Uint8Array.from(atob(block.textContent), one => one.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
};
for (const cell of document.querySelectorAll("details.cell")) cell.addEventListener("toggle", () => {
  if (cell.open && page.build) page.build(cell);
  page.choose("open", [...document.querySelectorAll("details.cell[open]")].map(one => one.id).join(","));
});

// A link in the page names a place alone: what was chosen before stays.
page.go = () => {
  const target = document.getElementById(page.read().place);
  if (target && target.tagName === "DETAILS") target.open = true;
  page.write();
  if (target) target.scrollIntoView();
};
page.start = () => {
  for (const [key, value] of [...page.chosen]) {
    const [what, of] = key.split("."), table = of && document.getElementById(of);
    if (what === "sort" && table) { const head = table.tHead.rows[0].cells[parseInt(value, 10)]; if (head) page.sort(head, value.endsWith("-")); }
    if (what === "filter" && table) { const input = document.querySelector(`input.filter[data-table="${CSS.escape(of)}"]`); input.value = value; page.filter(input); }
    if (what === "columns") { const shown = value.split(","); for (const box of document.querySelectorAll("[data-column]")) box.checked = shown.includes(box.dataset.column); page.columns(); }
    if (what === "open") for (const id of value.split(",")) { const cell = document.getElementById(id); if (cell) cell.open = true; }
  }
  if (location.hash) page.go();
};
addEventListener("hashchange", page.go);
// What a word means, as the glossary says it, once a reader points at the word.
for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, event => {
  const word = event.target.closest("a.word:not([title])"), entry = word && document.getElementById(word.hash.slice(1));
  if (entry) word.title = entry.querySelector("dd").textContent;
});
// What is drawn only when a reader comes to it: figures near the window, and counters that are opened. Printing waits for
// nothing, so the texts of all blocks are unpacked before, once the page is there.
page.texts = new Map();
page.ready = async block => { if (!page.texts.has(block)) page.texts.set(block, await page.unpack(block)); };
page.draw = block => {
  const made = document.createElement("template");
  made.innerHTML = page.texts.get(block);
  block.replaceWith(made.content);
};
page.come = async home => {
  const block = home.querySelector(":scope > script.drawn");
  if (!block) return;
  await page.ready(block);
  if (block.isConnected) page.draw(block);
};
const blocks = document.querySelectorAll("script.drawn");
const near = new IntersectionObserver(seen => { for (const {isIntersecting, target} of seen) if (isIntersecting) { near.unobserve(target); page.come(target); } }, {rootMargin: "600px"});
if (!globalThis.DecompressionStream) for (const block of blocks) block.replaceWith("This browser is too old to draw what belongs here.");
else {
  for (const {parentElement: home} of blocks) if (home.tagName === "DETAILS") home.addEventListener("toggle", () => page.come(home)); else near.observe(home);
  addEventListener("load", async () => { for (const block of blocks) await page.ready(block); });
  addEventListener("beforeprint", () => { for (const block of page.texts.keys()) if (block.isConnected) page.draw(block); });
}
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details:not(.columns)")) one.open = true; });
addEventListener("DOMContentLoaded", page.start);
