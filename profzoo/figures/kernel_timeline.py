"""Draws how busy the units of the GPU are over time inside the most expensive kernels, by ncu's PM sampling."""

import re
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo.cell.sidecar_files import read_facts
from profzoo.figures import palette, plots
from profzoo.io import csv_tables as reading
from profzoo.kernels import short_names
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.instances import TABLE, TIME

# What is drawn, with its colour, and the metrics of it in different versions of ncu; the first one counts that a report
# has. The ends of their names say that they are shares of a peak.
SERIES = {
    "SM": (palette.CYCLE[0], ("sm__throughput", "sm__inst_executed_realtime")),
    "tensor cores": (palette.CYCLE[2], ("sm__pipe_tensor_cycles_active_realtime", "sm__pipe_tensor_cycles_active")),
    "L1": (palette.CYCLE[8], ("l1tex__throughput",)),
    "L2": (palette.CYCLE[1], ("lts__throughput",)),
    "DRAM": (palette.CYCLE[3], ("dramc__throughput", "dram__throughput")),
    "DRAM, reads": (palette.CYCLE[3], ("dramc__read_throughput", "dram__read_throughput")),
}
OF_PEAK = re.compile(r"(?:.*[.:])?(\w+__\w+)\.avg\.pct_of_peak_sustained_elapsed")
SHORTER = "ncu.extra takes --pm-sampling-interval for shorter ones"
# Kernels that are drawn, and the part of a kernel's time that is shown before and after it.
MOST, AROUND = 6, 0.04
WIDTH, HEIGHT = 8.0, 1.5
# A course over time takes this many samples of a unit. Units that are never busier, in %, have no line.
LEAST_SAMPLES, LEAST_BUSY = 10, 1.0


def draw(instances: pd.DataFrame, times: pd.Series) -> Figure:
    """Draw a panel per kernel that is long enough for LEAST_SAMPLES, the most expensive first.

    Args:
        instances: the table of instances; columns used: place, id, function, metric, kind, time_ns, value.
        times: GPU time of the launches under ncu in ns, by their `id`.
    """
    plots.set_style()
    sampled = instances[instances["kind"].eq(TIME)].copy()
    sampled["name"] = sampled["function"].map(short_names.shorten_names(sampled["function"].unique()))
    sampled["unit_of_gpu"] = sampled["metric"].str.extract(OF_PEAK.pattern + "$", expand=False)
    sampled = sampled[sampled["unit_of_gpu"].notna()]
    if sampled.empty:
        return plots.draw_nothing("Nothing was sampled over time: collect the section PmSampling")
    inside = sampled[sampled["time_ns"].between(0, sampled["id"].map(times).fillna(np.inf))]
    most = inside.groupby(["place", "unit_of_gpu"]).size().groupby("place").max()
    places = sorted(most.index[most >= LEAST_SAMPLES])[:MOST]
    if not places:
        return plots.draw_nothing(f"No kernel is as long as {LEAST_SAMPLES} samples: {SHORTER}")
    figure, axes = plt.subplots(len(places), figsize=(WIDTH, 1.0 + HEIGHT * len(places)), squeeze=False)
    for axis, place in zip(axes[:, 0], places, strict=True):
        _draw_kernel(axis, sampled[sampled["place"].eq(place)], times)
    short = int((most < LEAST_SAMPLES).sum())
    left_out = f"; shorter kernels, left out: {short}" if short else ""
    axes[-1, 0].set_xlabel(f"Time from the start of the kernel (µs){left_out}")
    figure.supylabel("Throughput (% of peak)", fontsize=plt.rcParams["axes.labelsize"])
    known = {handle.get_label(): handle for axis in axes[:, 0] for handle in axis.get_lines()}
    names = [name for name in SERIES if name in known]
    axes[0, 0].legend([known[name] for name in names], names, loc="lower left", bbox_to_anchor=(0, 1.16),
                      ncols=len(names), frameon=False, handlelength=1.2, columnspacing=1.2)  # fmt: skip
    return figure


def _draw_kernel(axis: Axes, sampled: pd.DataFrame, times: pd.Series) -> None:
    first = sampled.iloc[0]
    took = float(times.get(first["id"], float("nan")))
    ends = took if took > 0 else float(sampled["time_ns"].max())
    shown = sampled[sampled["time_ns"].between(-AROUND * ends, (1 + AROUND) * ends)]
    # Where reads and writes of DRAM are sampled together, their sum is drawn alone.
    drawn: set[str] = set()
    for name, (colour, candidates) in SERIES.items():
        found = next((one for one in candidates if shown["unit_of_gpu"].eq(one).any()), None)
        if found is None or colour in drawn:
            continue
        drawn.add(colour)
        own = shown[shown["unit_of_gpu"].eq(found)].sort_values("time_ns")
        if own["value"].max() < LEAST_BUSY:
            continue
        axis.plot(own["time_ns"] / 1000, own["value"], color=colour, label=name, linewidth=1.2)
    axis.set(ylim=(0, 104), xlim=(-AROUND * ends / 1000, (1 + AROUND) * ends / 1000), yticks=(0, 50, 100))
    axis.set_title(f"{first['place']}. {first['name']}, {ends / 1000:,.1f} µs", fontsize=9)


def main(instances: str, launches: str, sidecar: str, outputs: Sequence[str], dpi: int) -> None:
    """Read the tables of a section set, draw the figure, and write it to each output file; dpi: of PNG files."""
    table = reading.read(launches, export_schema.TABLE)
    facts = read_facts(sidecar)
    made = pd.DataFrame({"device": [facts.get("gpu") or ""], "date": [str(facts.get("started") or "")[:10]]})
    figure = draw(reading.read(instances, TABLE), table.set_index("id")[GPU_TIME])
    plots.save_figure(figure, outputs, plots.make_note(made), dpi)
