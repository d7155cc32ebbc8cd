"""How large the page of 100 made-up cells is, how soon it is there and how soon it answers, in a headless Chromium.

    python -m tests.benchmarks.page_speed [REPEATS [CELLS]]

Bytes of the page by part. Medians of so many times that it is opened: until something is painted, until its document is
loaded, until a cell's page is built, a turn of the wheel in a table of 10,000 rows (the median of 30), and sorting and
searching that. A frame of a screen takes 16 ms.
"""

import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import devtools, whole_zoo

# Parts of the page, each by what matches it and no part before.
PARTS = {
    "data of cells": r'<script type="application/zlib" class="data">.*?</script>',
    "counters of cells": r'<details class="more counters">.*?</details>',
    "figures": r"<figure\b.*?</figure>",
    "other parts of cells": r'<details id="[^"]*" class="cell">.*?(?=<details id="[^"]*" class="cell">|<h2 id="figures">)',
    "scripts and styles": r"<(?P<code>script|style)\b.*?</(?P=code)>",
    "tables of all cells": r"<table\b.*?</table>",
}
WHAT = {
    "painted": "first paint",
    "loaded": "page loaded",
    "built": "cell opened",
    "scrolled": "10,000 rows scrolled",
    "sorted": "sorted, searched",
}
READER = f"""
  const seen = {{}}, wait = ms => new Promise(done => setTimeout(done, ms));
  const type = (input, words) => {{ input.value = words; input.dispatchEvent(new Event("input")); }};
  seen.painted = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  const [entry] = performance.getEntriesByType("navigation");
  const timed = what => {{ const began = performance.now(); what(); return performance.now() - began; }};
  seen.loaded = entry.domContentLoadedEventEnd - entry.startTime;
  const began = performance.now();
  const cell = document.getElementById("bert-train");
  cell.open = true;
  while (!cell.querySelector(".tree")) await wait(0);
  seen.built = performance.now() - began;
  {whole_zoo.MANY_ROWS}
  const turns = Array.from({{length: 30}}, (_, turn) => timed(() => scroll(home.querySelector(".grid"), turn * 8000)));
  seen.scrolled = turns.sort((a, b) => a - b)[15];
  seen.sorted = timed(() => sort(home, "kernel 99"));
"""


def measure_parts(page: str) -> dict[str, int]:
    """Return the bytes of a page by part, with `all` and `other`."""
    sizes = {"all": len(page.encode())}
    for name, matches in PARTS.items():
        before = len(page.encode())
        page = re.sub(matches, "", page, flags=re.DOTALL)
        sizes[name] = before - len(page.encode())
    return sizes | {"other": len(page.encode())}


def open_page(page: Path) -> dict[str, float]:
    """Return how many ms each of WHAT takes in a browser that has not opened the page before."""
    with tempfile.TemporaryDirectory() as folder, devtools.driven(Path(folder)) as driver:
        shown = driver.opened(page.as_uri())
        shown.until("performance.getEntriesByName('first-contentful-paint').length")
        return shown.value(f"(async () => {{{READER}\n return seen; }})()")


def main(repeats: int, cells: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own, because a browser gets descriptors that figures may have used.
        subprocess.run(
            [sys.executable, "-m", "tests.whole_zoo", folder, str(cells)], check=True, stdout=subprocess.DEVNULL
        )
        page = Path(folder) / "report.html"
        sizes = measure_parts(page.read_text())
        opened = [open_page(page) for _ in range(repeats)]
    print("| part of the page | kB |\n|---|---|")
    for name, size in sizes.items():
        print(f"| {name} | {size / 1e3:,.0f} |")
    print("\n| what | ms, median | fastest | slowest |\n|---|---|---|---|")
    for name, what in WHAT.items():
        times = [seen[name] for seen in opened]
        print(f"| {what} | {statistics.median(times):.1f} | {min(times):.1f} | {max(times):.1f} |")


if __name__ == "__main__":
    main(*(int(given) for given in [*sys.argv[1:3], *("5", "100")[len(sys.argv[1:3]) :]]))
