"""Draw the throughput of generated tokens against the time that each takes, by batch and context."""

import re

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import plots
from profzoo.figures.plots import attach_titles

ORDER = 13
TITLE = "throughput of tokens against latency"
INPUTS = ("cells",)
NEEDS = ("generating",)
CAPTION = (
    "Tokens per second of the whole batch, with the reading of the prompt, against the time of each token after the "
    "first. A line joins the batches of a model at one context (tokens of the prompt); numbers at the points are "
    "batches."
)
# Variants that a sweep makes of what the figure shows already.
SWEPT = re.compile(r"(?<=[@+])(?:batch|context)\w+\+?")


def draw(cells: pd.DataFrame) -> Figure:
    """Draw one point per cell that generates tokens.

    cells: the table `cells`; columns used: model, phase, batch, context, token_ns, tokens_per_s.
    """
    plots.set_style()
    known = cells[cells["token_ns"].notna()] if "token_ns" in cells else cells[:0]
    if known.empty:
        return plots.draw_nothing("No cell has generated a token and a further one")
    context = known["context"] if "context" in known else pd.Series(float("nan"), known.index)
    names = (SWEPT.sub("", model).rstrip("@+") for model in known["model"])
    pairs = zip(names, context, strict=True)
    told = [name if pd.isna(count) else f"{name}, context {count:,.0f}" for name, count in pairs]
    figure, axis = plt.subplots(figsize=(8, 5))
    for line, own in known.assign(line=told).groupby("line", sort=False):
        own = own.sort_values("batch")
        (colour,) = {one.get_color() for one in axis.plot(own["token_ns"] / 1e6, own["tokens_per_s"], label=line)}
        for batch, ns, rate in own[["batch", "token_ns", "tokens_per_s"]].itertuples(index=False):
            axis.annotate(f"{batch:,.0f}", (ns / 1e6, rate), xytext=(4, 4), textcoords="offset points", fontsize=8)
            said = f"{line}, batch {batch:,.0f}: {formatting.format_ns(ns)} per token, {rate:,.0f} tokens per second"
            attach_titles(axis.scatter([ns / 1e6], [rate], color=colour), [said])
    for side, name in ((axis.xaxis, "token_ns"), (axis.yaxis, "tokens_per_s")):
        plots.set_logarithmic(side, known[name] / (1e6 if name == "token_ns" else 1))
    axis.set(xlabel="Time of a token (ms)", ylabel="Tokens per second of the batch")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False)
    return figure
