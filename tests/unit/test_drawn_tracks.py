"""Tracks below the typical step as a browser draws them, and how they stay small however much was collected."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.report import cell_data, page
from profzoo.tools.nsys.pictures import tracks
from tests import browser

STEP = {"step": 2, "steps": 3, "ns": 1_000_000, "names": ["step", "forward", "k"], "classes": ["", "", "gemm"],
        "ranges": [[0, 1_000_000, 0], [0, 600_000, 1]], "calls": [], "streams": {"7": [[0, 900_000, 2]]},
        "gaps": []}  # fmt: skip


def collected() -> pd.DataFrame:
    """Half of the step at 100 %, then at 50 %; memory that doubles; and a thread that waits."""
    return pd.concat(
        [
            tracks.make_spans("DRAM read", [(0, 500_000, 100.0), (500_000, 1_000_000, 50.0)], "%"),
            tracks.make_spans("memory: device", [(0, 250_000, 1e9), (250_000, 1_000_000, 2e9)], "bytes"),
            tracks.make_spans(
                "thread 1", [(0, 700_000, np.nan), (700_000, 1_000_000, np.nan)], labels=["runs", "poll"]
            ),
        ],
        ignore_index=True,
    )


def write_page(folder: Path, spans: pd.DataFrame, not_collected: list[str]) -> Path:
    drawn = cell_data.colour_tracks(tracks.condense_tracks(spans))
    data = json.dumps({**STEP, "tracks": drawn, "not_collected": not_collected})
    html = folder / "page.html"
    html.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><style>{page._read_assets("css")}</style></head>'
        f'<body><script type="application/json" id="page-data">{cell_data.page_data(None, {})}</script>'
        f'<div id="home"></div><script>{page._read_assets("js")}\nwindow.given = {data};</script></body></html>'
    )
    return html


DRAW = """
  page.timeline(document.getElementById("home"), given);
  await wait(200);
  const canvas = document.querySelector("canvas.timeline"), pen = canvas.getContext("2d"), wide = canvas.clientWidth;
  seen.label = canvas.getAttribute("aria-label");
  seen.text = document.getElementById("home").innerText;
  // Rows in which a column of the canvas has a colour, at a part of the step.
  const rows = (part, colour) => {
    const x = Math.round(104 + part * (wide - 104)), bytes = pen.getImageData(x, 0, 1, canvas.height).data;
    const wanted = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
    return [...Array(canvas.height).keys()].filter(y => wanted.every((value, at) => bytes[4 * y + at] === value)).length;
  };
  const [dram, memory, thread] = given.tracks;
  seen.dram = [rows(0.25, dram.colours[0]), rows(0.75, dram.colours[0])];
  seen.memory = [rows(0.1, memory.colours[0]), rows(0.6, memory.colours[0])];
  seen.thread = [rows(0.35, thread.colours[0]), rows(0.97, thread.colours[1])];
"""
# A timeline of an earlier version has no tracks.
EARLIER = """
  const other = document.createElement("div"), {tracks: _, not_collected: __, ...earlier} = given;
  document.body.append(other);
  page.timeline(other, earlier);
  await wait(200);
  seen.earlier = other.querySelector("canvas.timeline").getAttribute("aria-label");
"""
NOTED = """
  seen.texts = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
    seen.texts.push(text);
    write.call(this, text, ...more);
  };
"""


@browser.needed
def test_values_are_drawn_as_high_as_they_are_and_names_are_whole(tmp_path: Path) -> None:
    name = "calls: pt_autograd_0 4711"
    spans = pd.concat([collected(), tracks.make_spans(name, [(0, 9_000, np.nan)], labels=["poll"])], ignore_index=True)
    html = write_page(tmp_path, spans, ["nothing was sampled: set a"])
    seen, _ = browser.opened(html, tmp_path, NOTED + DRAW + EARLIER)
    assert seen["failures"] == []
    # A row is 34 pixels high for values and 22 for labels.
    assert seen["dram"] == [34, 17] and seen["memory"] == [17, 34] and seen["thread"] == [22, 22]
    assert "DRAM read 2, memory: device 2, thread 1 2" in seen["label"]
    assert "Nothing was sampled: set a." in seen["text"]
    assert name in seen["texts"] and "memory: device" in seen["texts"]
    assert "GPU: stream 7" in seen["earlier"] and "DRAM" not in seen["earlier"]


def test_many_spans_keep_their_mean_and_their_peak_of_memory() -> None:
    random = np.random.default_rng(3)
    starts, values = np.arange(20_000) * 100, random.uniform(0, 100, 20_000)
    rows = list(zip(starts, starts + 100, values, strict=True))
    spans = pd.concat([tracks.make_spans("SMs active", rows, "%"), tracks.make_spans("memory: device", rows, "bytes")])
    active, memory = tracks.condense_tracks(spans.reset_index(drop=True))
    assert len(active["spans"]) == len(memory["spans"]) == tracks.MOST
    weights = [ns for _, ns, _, _ in active["spans"]]
    assert np.average([value for _, _, value, _ in active["spans"]], weights=weights) == pytest.approx(
        values.mean(), rel=1e-4
    )
    assert max(value for _, _, value, _ in memory["spans"]) == pytest.approx(values.max(), rel=1e-5)
    assert active["peak"] == pytest.approx(values.max()) and active["top"] == 100
    assert len(json.dumps([active, memory])) < 60_000
