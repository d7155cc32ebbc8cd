"""A made-up report of all 42 cells: recorded steps and kernels, counters and layers that follow from them.

python -m tests.whole_zoo FOLDER [CELLS] writes its page into the folder, for a look at it. Of more than 42 cells, the
others are the same ones again under other names, and each has a timeline of as many launches as it has.
"""

import functools
import gzip
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.cell import rerun_commands
from profzoo.compare import numerics
from profzoo.figures import all_figures, drawing
from profzoo.figures.plots import make_note, save_figure
from profzoo.plans import plan, plan_table, recipes
from profzoo.report import page
from profzoo.tables import across_cells
from profzoo.tools.ncu.quantities import LINKS, PIPE_NAMES, STATES
from profzoo.tools.nsys.pictures import median_step
from profzoo.verdicts import SIMULATED
from profzoo.verdicts.causes import verdicts
from tests import known_rules
from tests.conftest import DATA

CELLS = 42
PEAKS = {"dram": 4.2e12, "l2": 1.44e13, "fp32": 5.1e13, "tf32": 4e14, "bf16": 7.5e14}
SPREAD = {"clocks": "power cap in 40% of samples", "unsteady": "the middle half of the steps spreads by 13%"}
PERFETTO = {"address": "https://ui.perfetto.dev", "type": "snakemake serve"}
FAILED = [
    {"model": "esrgan", "phase": "train", "why": "out of GPU memory: lower the batch (settings: {esrgan: {batch: 2}})"}
]
# A table of so many rows put into the page, for a reader of `browser`: `home`, what scrolls it, and what sorts and searches.
MANY_ROWS = """
  const rows = Array.from({length: 10000}, (_, index) => ({name: `kernel ${index * 7919 % 10000}`, class: "gemm", ns: index, launches: 1}));
  const home = document.createElement("div");
  document.querySelector("main").prepend(home);
  page.grid(home, "many", rows, ["name", "class", "launches", "ns"], () => {});
  const scroll = (view, to) => { view.scrollTop = to; view.dispatchEvent(new Event("scroll")); };
  const sort = (home, words) => { home.querySelector(".grid-head button").click(); type(home.querySelector("input"), words); };
"""


def _cells(steps: pd.DataFrame) -> pd.DataFrame:
    table = steps[["model", "phase", "steps", "step_ns", "step_median_ns"]].copy()
    number = np.arange(len(table))
    table = table.assign(
        device="NVIDIA H200", date="2026-11-22", workload="trimmed", precision="fp32", parameters=3_504_872 * (1 + number),
        batch=8, steps=20, items_per_s=8e9 / table["step_ns"], peak_memory_bytes=(0.2 + 0.1 * number) * 2**30,
        peak_rss_bytes=2**30, loss=1.5, processes=1 + number % 3, step_low_ns=table["step_ns"] * 0.97,
        step_high_ns=table["step_ns"] * 1.03, step_lower_quartile_ns=table["step_median_ns"] * 0.99,
        step_upper_quartile_ns=table["step_median_ns"] * 1.02, cpu_taken_share=0.001, unsteady="", clocks="",
    )  # fmt: skip
    for name, said in SPREAD.items():
        table.loc[number % 14 == 5, name] = said
    return table


def _repeat(table: pd.DataFrame, cells: int) -> pd.DataFrame:
    """Return the rows of so many cells: those of the table, then the same ones again as `model-2`, `model-3`."""
    known = table.groupby(["model", "phase"], sort=False).ngroup()
    count = int(known.max()) + 1
    again = [
        table[known + turn * count < cells].assign(
            model=lambda own, turn=turn: own["model"] + f"-{turn + 1}" * (turn > 0)
        )
        for turn in range(-(-cells // count))
    ]
    return pd.concat(again, ignore_index=True)


def _kernels(cells: int) -> pd.DataFrame:
    with gzip.open(DATA / "zoo/kernels.csv.gz") as packed:
        table = _repeat(pd.read_csv(packed).fillna({"range": "", "class": ""}), cells)
    spread = (table["grid_x"] % 97 + 3) / 100
    table = table.assign(
        kernel=table["function"], mangled=table["function"], block_x=128, block_y=1, block_z=1, smem_static_bytes=0,
        smem_dynamic_bytes=0, dram_bytes=table["mean_ns"] * 2000 * spread, tensor_bf16_flop=0.0, registers=64,
        share=table["total_ns"] / table.groupby(["model", "phase"])["total_ns"].transform("sum"),
    )  # fmt: skip
    table["fp32_flop"] = table["dram_bytes"] * 20 * spread
    for name in ("sm_pct", "memory_pct", "dram_pct", "l2_pct", "issue_pct", "l2_hit_pct", "occupancy_limit_pct"):
        table[name] = 100 * spread
    return table.assign(occupancy_pct=50 * spread)


def _counters(kernels: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of CHARTS with every link, pipe and state, by cell and by class of its kernels."""
    by_class = ["model", "phase", "class"]
    sums = kernels.groupby(by_class, sort=False)[["launches", "total_ns"]].sum().reset_index().assign(level="class")
    whole = sums.groupby(by_class[:2], sort=False)[["launches", "total_ns"]].sum().reset_index()
    groups = pd.concat([whole.assign(level="cell", **{"class": ""}), sums], ignore_index=True).assign(counted_share=1.0)
    links = pd.DataFrame({"link": [*LINKS], "source": [one.source for one in LINKS.values()],
                          "target": [one.target for one in LINKS.values()]})  # fmt: skip
    chart, pipes, states = (
        groups.merge(other, how="cross")
        for other in (links, pd.DataFrame({"pipe": [*PIPE_NAMES]}), pd.DataFrame({"state": [*STATES]}))
    )
    dice = np.random.default_rng(0)
    chart = chart.assign(bytes=chart["total_ns"] * 1000 * dice.random(len(chart)), bytes_low=np.nan, bytes_high=np.nan,
                         bytes_per_s=1e12, peak_pct=100 * dice.random(len(chart)), hit_pct=60.0, otherwise_bytes=np.nan)  # fmt: skip
    states = states.assign(cycles=10 * dice.random(len(states)), warp_cycles=100.0)
    occupancy = kernels.assign(
        threads=128, shared_bytes=1024, reserved_bytes=1024, capacity_bytes=135168, limit_registers=3, limit_shared=7,
        limit_warps=16, limit_blocks=32, limit_barriers=32, theoretical_pct=18.75, computed_pct=18.75, waves=2.0,
        limiter="registers", achieved_pct=kernels["occupancy_pct"], registers_next=32.0, registers_next_pct=25.0,
        shared_next_bytes=np.nan, shared_next_pct=np.nan, threads_best=np.nan, threads_best_pct=np.nan,
    )  # fmt: skip
    return {
        "memory_chart": chart,
        "pipes": pipes.assign(busy_pct=100 * dice.random(len(pipes)), counted="cycles"),
        "warp_states": states.assign(share=states["cycles"] / 100),
        "occupancy": occupancy,
    }


def _layers(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return a tree of modules for each cell; each module has a few of the cell's kernels."""
    rows: list[dict[str, Any]] = []
    for (model, phase), own in kernels.groupby(["model", "phase"], sort=False):
        whole = own["total_ns"].sum()
        for direction, mine in own.groupby("range", sort=False):
            node = {
                "model": model,
                "phase": phase,
                "direction": direction,
                "share": 0.0,
                "efficiency": 0.2,
                "bound": "dram",
            }
            sums: dict[str, float] = {"(step)": 0, "(root)": 0}
            for number, row in enumerate(mine.itertuples()):
                path = [
                    "(root)",
                    f"stage{number % 4}",
                    f"stage{number % 4}.{number // 4 % 12}",
                    f"stage{number % 4}.{number // 4 % 12}.{row.function[:12]}",
                ]
                for name in ["(step)", *path]:
                    sums[name] = sums.get(name, 0) + row.total_ns
            for name, ns in sums.items():
                parent = (
                    "" if name == "(step)" else "(step)" if name == "(root)" else name.rpartition(".")[0] or "(root)"
                )
                rows.append({**node, "module": name, "parent": parent, "type": "Conv2d" if name.count(".") > 1 else "Sequential",
                             "calls": 1, "launches": 3.0, "self_ns": ns if name.count(".") > 1 else 0.0, "total_ns": ns,
                             "needed_share": 1.0, "counted_share": 1.0, "needed_flop": ns * 3e3,
                             "simt_flop": ns * 4e3, "tensor_flop": 0.0, "dram_bytes": ns * 1e3,
                             "share": ns / whole})  # fmt: skip
    return pd.DataFrame(rows)


def _replayed(advice: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the verdicts with the simulated gain of a graph for cells that launches limit."""
    idle = steps.drop_duplicates(["model", "phase"]).set_index(["model", "phase"])["busy_share"].rsub(1)
    table, mine = advice.copy(), (advice["verdict"] == "launch-bound") & (advice["level"] == "cell")
    gain = 1 / (1 - 0.8 * idle.reindex(pd.MultiIndex.from_frame(table.loc[mine, ["model", "phase"]])).to_numpy())
    table.loc[mine, ["gain", "gain_low", "gain_high"]] = np.stack([gain, 0.95 * gain, 1.05 * gain], axis=1)
    table.loc[mine, "method"] = SIMULATED
    return table


def _plans(given: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Plans of what verdicts advise, a combination with each graph that may gain half as much again, and what is not possible."""
    table = plan_table.tabulate_plans(
        {name: given[name] for name in plan_table.TABLES}, PEAKS, {}, known_rules.load(), {}
    )
    graphs = table[table["settings"] == "graph=true"]
    words = "graph=true precision=bf16"
    both = graphs.assign(
        settings=words, changes=recipes.describe_changes(words), recipe=recipes.format_recipes(words),
        gain=1.5 * graphs["gain"], gain_low=0.9, gain_high=2.4 * graphs["gain"], outlook=plan.MAY_NOT_HELP, verdicts="launch-bound + memory-bound", advised=False,
        evidence="program.npz: simulated graph + bf16; verdicts.csv: launch-bound (rank 1)",
        command=[rerun_commands.comparison_command(f"{row.model} {row.phase}", words) for row in graphs.itertuples()],
    )  # fmt: skip
    why = "the step waits for the GPU: .item() at train.py:84"
    none = graphs.tail(3).assign(settings="compile=true", gain=np.nan, gain_low=np.nan, gain_high=np.nan, command="",
                                 outlook=plan.NOT_POSSIBLE, not_possible=why)  # fmt: skip
    whole = pd.concat([both, table, none], ignore_index=True).sort_values("gain", ascending=False, kind="stable")
    return whole.assign(rank=whole.groupby(["model", "phase"]).cumcount() + 1)


def _trials() -> pd.DataFrame:
    said = {"settings": "graph", "words": "graph=true", "advised_by": "launch-bound", "expected": 2.6, "verdict": "faster",
            "outcome": "hit", "chosen": True, "why": "", "processes": 5, "loss_difference": 0.0, "output_difference": 0.0,
            **numerics.UNKNOWN, "numerics": "same"}  # fmt: skip
    times = {"base_ns": 1.8e7, "ns": 6.2e6, "gain": 2.9, "gain_low": 2.8, "gain_high": 3.0}
    slower = {**times, "ns": 2e7, "gain": 0.9, "gain_low": 0.88, "gain_high": 0.92}
    rows = [{**said, **times, "model": "mobilenetv2", "phase": "train"},
            {**said, **slower, "model": "mobilenetv2", "phase": "train", "settings": "channels_last", "words": "channels_last=true",
             "verdict": "slower", "outcome": "", "chosen": False},
            {**said, **times, "model": "lstm", "phase": "train", "gain": np.nan, "gain_low": np.nan, "gain_high": np.nan,
             "verdict": "failed", "why": "a loop cannot be captured", "chosen": False, "outcome": ""}]  # fmt: skip
    return pd.DataFrame(rows)


def _activity(kernels: pd.DataFrame) -> pd.DataFrame:
    sums = kernels.groupby(["model", "phase", "range", "function"], sort=False)[["launches", "total_ns", "share"]].sum()
    table = sums.reset_index().rename(
        columns={"function": "name", "launches": "launches_per_step", "total_ns": "ns_per_step"}
    )
    return table.assign(tool="nsys", kind="kernel").sort_values("ns_per_step", ascending=False, ignore_index=True)


def _agreement(steps: pd.DataFrame) -> pd.DataFrame:
    table = steps[["model", "phase", "step_ns"]].copy()
    return table.assign(nsys_launches=steps["launches"], torch_launches=steps["launches"], launches_spread=0.0,
                        nsys_gpu_ns=steps["busy_ns"], gpu_ns_spread=0.01, nsys_slowdown=1.9, flag="", cause="")  # fmt: skip


def _latency(steps: pd.DataFrame) -> pd.DataFrame:
    """Percentiles of windows of 20 to 3000 steps, with the cell's mean and made-up spread."""
    dice, timed = np.random.default_rng(0), []
    for place, row in enumerate(steps.itertuples()):
        count = (20, 300, 3000)[place % 3]
        slow = (dice.random(count) < 0.02) * dice.random(count)
        times = pd.Series(row.step_ns * (1 + 0.01 * dice.standard_normal(count) + slow)).round()
        frame = pd.DataFrame({"step": range(count), "wall_ns": times, "gpu_ns": times, "items": 1})
        timed.append(({"model": row.model, "phase": row.phase}, frame, {}))
    return across_cells.make_latency(timed)


def tables(cells: int = CELLS) -> dict[str, pd.DataFrame]:
    """Return the tables of the page of so many cells, by name."""
    # A number that is given and one that is left out are the same here, and would be two in a cache.
    return _make_tables(cells)


@functools.cache
def _make_tables(cells: int) -> dict[str, pd.DataFrame]:
    steps, kernels = _repeat(pd.read_csv(DATA / "zoo/steps.csv"), cells), _kernels(cells)
    roofline = across_cells.make_roofline(kernels, PEAKS)
    advice = verdicts.tabulate_verdicts(steps, kernels, roofline, PEAKS, {}, {}, known_rules.load())
    from_ncu = advice[advice["level"] == "kernel"].assign(
        by="ncu", next_step="Est. Speedup: 12 %", verdict="ncu: occupancy"
    )
    ranges = (
        _activity(kernels)
        .groupby(["model", "phase", "range", "tool"], sort=False, as_index=False)[["ns_per_step", "launches_per_step"]]
        .sum()
    )
    found = {
        "cells": _cells(steps), "steps": steps, "kernels": kernels, "roofline": roofline, "layers": _layers(kernels),
        "verdicts": pd.concat([_replayed(advice, steps), from_ncu.head(60)], ignore_index=True),
        "trials": _trials(), "activity": _activity(kernels), "agreement": _agreement(steps),
        "ranges": ranges.assign(clock="gpu"),
        "latency": _latency(steps),
        "ranks": pd.DataFrame(columns=["model", "phase"]),
        "peaks": pd.Series(PEAKS, name="rate").rename_axis("peak").reset_index(),
    }  # fmt: skip
    # The page of the zoo itself is also that of a run without these counters.
    more = _counters(kernels) if cells != CELLS else {}
    return found | more | {"plans": _plans(found)}


def timeline(folder: Path) -> dict[str, Any]:
    """Return a typical step of the recorded training."""
    path = folder / "train.sqlite"
    path.write_bytes(gzip.decompress((DATA / "nsys/train.sqlite.gz").read_bytes()))
    found = median_step.read_step_with_tracks(path)
    assert found
    return found[0]


def _timelines(step: dict[str, Any], steps: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """Return a timeline for each cell with as many launches as it has: the step again and again, no time twice."""
    dice, recorded = np.random.default_rng(0), sum(map(len, step["streams"].values()))

    def repeat(rows: list[list[int]], launches: int) -> list[list[int]]:
        turns = max(1, -(-launches // recorded))
        kept = len(rows) if launches >= recorded else max(1, len(rows) * launches // recorded)
        found = []
        for turn in range(turns):
            for at, ns, *more in rows[:kept]:
                found.append(
                    [at + turn * step["ns"] + int(dice.integers(0, 200)), int(ns * dice.uniform(0.8, 1)) + 1, *more]
                )
        return sorted(found)[: -(-len(rows) * launches // recorded)]

    return {
        (row.model, row.phase): {
            **step,
            "ns": step["ns"] * max(1, -(-int(row.launches) // recorded)),
            "calls": repeat(step["calls"], int(row.launches)),
            "gaps": repeat(step["gaps"], int(row.launches)),
            "streams": {name: repeat(rows, int(row.launches)) for name, rows in step["streams"].items()},
        }
        for row in steps.drop_duplicates(["model", "phase"]).itertuples()
    }


def figures(folder: Path, given: Mapping[str, pd.DataFrame]) -> list[str]:
    """Draw all figures for which the tables have data, and return their paths."""
    paths = []
    for name, figure in all_figures().items():
        if not figure.compares and set(figure.inputs) <= set(given):
            drawn = drawing.draw_figure(
                name, [given[table] for table in figure.inputs], dict.fromkeys(figure.options, 20)
            )
            paths.append(str(folder / f"{name}.svg"))
            save_figure(drawn, [paths[-1], str(folder / f"{name}.png")], make_note(given["cells"]))
    return paths


def write(folder: Path, drawn: bool = True, perfetto: Mapping[str, str] = PERFETTO, cells: int = CELLS) -> Path:
    """Write the page of the whole zoo into a folder.

    Every cell has a recorded trace. drawn: whether the page has figures; perfetto: address that opens traces.
    """
    home = folder / "figures"
    home.mkdir(parents=True, exist_ok=True)
    html = folder / "report.html"
    _add_traces(folder, cells)
    opened = tuple(sorted(perfetto.items()))
    shown = drawn or cells != CELLS
    paths = figures(home, tables(cells)) if drawn else []
    html.write_text(_render(folder, paths, opened, cells) if shown else _undrawn(opened))
    return html


def _add_traces(folder: Path, cells: int) -> None:
    for row in tables(cells)["cells"].itertuples():
        trace = folder / row.model / f"{row.phase}.trace.json.gz"
        trace.parent.mkdir(exist_ok=True)
        shutil.copyfile(DATA / "torch/unet.train.trace.json.gz", trace)


def _render(folder: Path, drawn: Sequence[str], perfetto: tuple[tuple[str, str], ...], cells: int = CELLS) -> str:
    given, tools = tables(cells), ["ncu", "nsys", "torch"]
    sidecars = [{"torch": "2.9.0", "cuda": "12.8", "driver": "570.1"}] * len(given["cells"])
    names = [(row.model, row.phase) for row in given["cells"].itertuples()]
    step = timeline(folder)
    typical = dict.fromkeys(names, step) if cells == CELLS else _timelines(step, given["steps"])
    shown = [page.read_figure(path) for path in drawn]
    return page.render_page(given, sidecars, shown, tools, folder, FAILED, typical, dict(perfetto))


@functools.cache
def _undrawn(perfetto: tuple[tuple[str, str], ...]) -> str:
    """Return the page without figures, which takes seconds and does not depend on its folder."""
    with tempfile.TemporaryDirectory() as folder:
        _add_traces(Path(folder), CELLS)
        return _render(Path(folder), [], perfetto)


if __name__ == "__main__":
    counts = [int(word) for word in sys.argv[2:] if word.isdecimal()]
    print(write(Path(sys.argv[1]), "--bare" not in sys.argv, cells=counts[0] if counts else CELLS))
