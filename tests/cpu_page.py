"""A page of two cells on a CPU, from made-up tables, and the words that must not appear on such a page."""

import re
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo import tools
from profzoo.figures import all_figures, drawing, list_drawable
from profzoo.figures.plots import make_note, save_figure
from profzoo.report import page
from profzoo.tables import latency
from profzoo.tables import layers as layer_tables
from profzoo.verdicts.causes import cpu_verdicts
from tests import known_rules

MS = 1e6
DEVICE = "CPU, 2 threads"
# Words that concern only GPUs, or the tools that profile GPUs.
OF_GPUS = re.compile(
    r"\b(GPUs?|CUDA|ncu|nsys|launch\w*|kernels?|DRAM|L2|warps?|SIMT|tensor cores?|multiprocessors?|roofline|NCCL|survey|"
    r"occupancy)\b",
    re.IGNORECASE,
)
# The only sentences about GPUs on a page of cells on a CPU: no GPU was used.
SAID = (r"Measured on the CPU, not on a GPU\.[^.]*\.",)
PHASES = ("train", "inference")
# The shipped figures for which torch alone has data, whatever has been added to them.
FIGURES = ("step_time", "latency", "ranges", "layers", "overhead", "top_kernels")


def operators() -> pd.DataFrame:
    rows = [
        ("aten::view", "a", "forward", 4, 4e3),
        ("aten::mm", "head", "forward", 1, 7 * MS),
        ("aten::tanh", "act", "forward", 1, 2 * MS),
    ]
    table = pd.DataFrame(rows, columns=["operator", "module", "direction", "launches", "total_ns"])
    table = table.assign(shapes="", caller="", type="Linear", needed_flop=np.nan, needed_share=0.0)
    return table.reindex(columns=layer_tables.OPERATORS)


def _layers() -> pd.DataFrame:
    rows = []
    for phase in PHASES:
        for name, parent, own, ns in (("(step)", "", 0.0, 9 * MS), ("(root)", "(step)", 0.0, 9 * MS), ("head", "(root)", 7 * MS, 7 * MS),
                                      ("act", "(root)", 2 * MS, 2 * MS)):  # fmt: skip
            rows.append({"model": "m", "phase": phase, "module": name, "parent": parent, "type": "Linear", "inputs": "", "calls": 1,
                         "direction": "forward", "launches": 2.0, "self_ns": own, "total_ns": ns, "share": ns / (9 * MS), "bound": ""})  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=["model", "phase", *layer_tables.LAYERS])


def tables() -> dict[str, pd.DataFrame]:
    cells = pd.DataFrame([
        {"model": "m", "phase": phase, "device": DEVICE, "date": "2026-11-20", "workload": "trimmed", "precision": "fp32",
         "parameters": 10, "batch": 2, "steps": 10, "step_ns": 10 * MS, "step_low_ns": 9.9 * MS, "step_high_ns": 10.1 * MS,
         "step_median_ns": 10 * MS, "step_lower_quartile_ns": 9.9 * MS, "step_upper_quartile_ns": 10.1 * MS, "processes": 1,
         "cpu_taken_share": 0.01, "unsteady": "", "items_per_s": 200.0, "peak_memory_bytes": pd.NA, "peak_rss_bytes": 2**30,
         "loss": 1.5, "torch_version": "2.9.0", "driver_version": "", "nsys_version": "", "ncu_version": ""}
        for phase in PHASES
    ])  # fmt: skip
    ranges = pd.DataFrame([{"model": "m", "phase": phase, "tool": "torch", "clock": "cpu", "range": name, "ns_per_step": ns,
                            "launches_per_step": np.nan} for phase in PHASES for name, ns in (("data", MS), ("forward", 9 * MS))])  # fmt: skip
    activity = pd.DataFrame([{"model": "m", "phase": phase, "tool": "torch", "kind": "operator", "range": "", "name": row.operator,
                              "launches_per_step": row.launches, "ns_per_step": row.total_ns, "share": row.total_ns / (9 * MS)}
                             for phase in PHASES for row in operators().itertuples()])  # fmt: skip
    agreement = cells[["model", "phase", "step_ns"]].assign(
        launches_spread=np.nan, gpu_ns_spread=np.nan, torch_slowdown=1.2, flag="", cause=""
    )
    verdicts = cpu_verdicts.tabulate_cpu_verdicts(
        cells, ranges, {("m", phase): operators() for phase in PHASES}, {}, known_rules.load(every=True)
    )
    times = [np.linspace(9.9, 10.1, 20) * MS]
    slowest = pd.concat([latency.list_percentiles(times).assign(model="m", phase=phase) for phase in PHASES])
    return {"latency": slowest.reset_index(drop=True)[latency.COLUMNS], "cells": cells, "ranges": ranges, "activity": activity, "agreement": agreement, "verdicts": verdicts, "layers": _layers(),
            "steps": pd.DataFrame(columns=["model", "phase", "busy_share", "launches"]),
            "ranks": pd.DataFrame(columns=["model", "phase"])}  # fmt: skip


def write(folder: Path) -> Path:
    """Write the page with the known figures."""
    given, drawn = tables(), []
    assert set(FIGURES) <= set(list_drawable({*tools.abilities_of(["torch"]), "layers"}))
    for name in FIGURES:
        figure = all_figures()[name]
        path = folder / f"{name}.svg"
        save_figure(
            drawing.draw_figure(name, [given[table] for table in figure.inputs], dict.fromkeys(figure.options, 20)),
            [str(path)],
            make_note(given["cells"]),
        )
        drawn.append(page.read_figure(str(path), on_cpu=True))
    sidecars = [{"torch": "2.9.0", "cuda": None, "device_why": "no GPU found"}] * len(given["cells"])
    html = folder / "report.html"
    html.write_text(page.render_page(given, sidecars, drawn, ["torch"], folder))
    return html


def of_gpus(html: str) -> list[str]:
    """Return words about GPUs in the text of a page, with their context; scripts, styles and file names are not text."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.DOTALL)
    # Hints in attributes are text too.
    hints = " ".join(re.findall(r'(?:title|aria-label)="([^"]*)"', text))
    plain = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", text) + " " + hints))
    plain = re.sub(r"[\w./@-]*/[\w./@-]+", " ", plain)
    plain = re.sub(r"[\w@-]+(\.[\w-]+)*\.(csv|gz|json|pt|svg|png)\b", " ", plain)
    for said in SAID:
        plain = re.sub(said, " ", plain)
    return [plain[max(0, found.start() - 60) : found.end() + 40] for found in OF_GPUS.finditer(plain)]
