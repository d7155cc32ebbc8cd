"""Draw the share of GPU time per kernel class, as stacked bars, with training beside inference."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots

ORDER = 30
TITLE = "kernel classes"
INPUTS = ("kernels",)
NEEDS = ("kernels",)
CAPTION = (
    "GPU time per step by kernel class, training beside inference, by nsys. The class follows from the kernel's name, "
    "by the rules in profzoo/kernels/kernel_classes.yaml."
)


def draw(kernels: pd.DataFrame) -> Figure:
    """Draw one bar per cell, training left of inference, with the models that take the most time on top.

    kernels: the table `kernels`, one row per cell, launch configuration and range; columns used: model, phase, class,
    total_ns.
    """
    plots.set_style()
    if kernels["total_ns"].sum() == 0:
        return plots.draw_nothing("No kernel was traced: nsys sees them on a GPU")
    phases = [phase for phase in palette.PHASE_COLOURS if (kernels["phase"] == phase).any()]
    models = kernels.groupby("model")["total_ns"].sum().sort_values(ascending=False, kind="stable").index.tolist()
    figure, axes = plt.subplots(
        1,
        len(phases),
        figsize=(1.5 + 6.5 * len(phases), plots.figure_height(len(models)) + 0.3),
        sharey=True,
        squeeze=False,
    )
    for axis, phase in zip(axes[0], phases, strict=True):
        times = kernels[kernels["phase"] == phase].pivot_table(
            index="model", columns="class", values="total_ns", aggfunc="sum", fill_value=0
        )
        times = times.reindex(models).fillna(0)
        whole = times.sum(axis=1)
        shares = times.div(whole.where(whole > 0), axis=0).fillna(0) * 100
        plots.draw_stacked_bars(
            axis, shares, palette.CLASS_COLOURS, [formatting.format_ns(ns) if ns else "–" for ns in whole]
        )
        axis.get_legend().remove()
        axis.set_xlabel(f"GPU time per step by class of kernel, {phase} (%)")
    used = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    order = [name for name in palette.CLASS_COLOURS if name in used]
    columns = 4 * len(phases)
    figure.legend([used[name] for name in order], order, loc="upper left", ncols=columns, frameon=False,
                  handlelength=1, columnspacing=1.2)  # fmt: skip
    # An empty title makes room for the legend of both panels.
    figure.suptitle("\n".join([" "] * -(-len(order) // columns)), fontsize=1.3 * plots.SMALL_TEXT)
    return figure
