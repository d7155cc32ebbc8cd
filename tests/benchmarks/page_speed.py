"""How soon the page of 42 made-up cells is there, and how soon it answers, in a headless Chromium.

    python -m tests.benchmarks.page_speed [REPEATS]

Medians of so many times that it is opened: until its document is loaded, until a cell's page is built, a turn of the
wheel in a table of 10,000 rows (the median of 30), and sorting and searching that. A frame of a screen takes 16 ms.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from tests import browser, whole_zoo

WHAT = {
    "loaded": "page loaded",
    "built": "cell opened",
    "scrolled": "10,000 rows scrolled",
    "sorted": "sorted, searched",
}
READER = f"""
  const [entry] = performance.getEntriesByType("navigation");
  const timed = what => {{ const began = performance.now(); what(); return performance.now() - began; }};
  seen.loaded = entry.domContentLoadedEventEnd - entry.startTime;
  const began = performance.now();
  document.getElementById("bert-train").open = true;
  await wait(0);
  seen.built = performance.now() - began;
  {whole_zoo.MANY_ROWS}
  const turns = Array.from({{length: 30}}, (_, turn) => timed(() => scroll(home.querySelector(".grid"), turn * 8000)));
  seen.scrolled = turns.sort((a, b) => a - b)[15];
  seen.sorted = timed(() => sort(home, "kernel 99"));
"""


def main(repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = whole_zoo.write(Path(folder))
        opened = [browser.opened(page, Path(folder), READER)[0] for _ in range(repeats)]
    print("| what | ms, median | fastest | slowest |\n|---|---|---|---|")
    for name, what in WHAT.items():
        times = [seen[name] for seen in opened]
        print(f"| {what} | {statistics.median(times):.1f} | {min(times):.1f} | {max(times):.1f} |")


if __name__ == "__main__":
    main(int(*sys.argv[1:2] or ["5"]))
