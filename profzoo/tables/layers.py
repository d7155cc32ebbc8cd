"""Makes a cell's tables of layers and of operators: where a step's time goes, by module and by operator."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, GPU, TEXT, Column, interval_ends, select
from profzoo.io.columns import COUNT as COLUMNS_COUNT
from profzoo.io.common_columns import IN_STEPS, OF_STEPS, STEP_COUNTS, shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import as_list, write_csv
from profzoo.kernels import counters, kernel_classes
from profzoo.kernels.counters import HIGH, LOW
from profzoo.launches import joined_step
from profzoo.launches.cross_tool import GRID, aligned_shares
from profzoo.launches.joined_step import BY, GROUPS, KERNEL, OWNER, UNALIGNED, Joined, owner_columns
from profzoo.op_costs.operators import COLUMNS as NEEDS
from profzoo.range_names import FORWARD, WHOLE_STEP, parent_module, path_to
from profzoo.range_names import STEP as RANGE_NAMES_STEP
from profzoo.tables import roofline
from profzoo.tables.roofline import read_peaks
from profzoo.tables.steps_per_export import NEEDS as OF_SIDECAR
from profzoo.tables.steps_per_export import count_profiled_steps
from profzoo.tools.ncu import estimates, export_schema
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys.events import launches
from profzoo.tools.torch import owners
from profzoo.tools.torch.compiled import COLUMNS as OF_COMPILED
from profzoo.tools.torch.compiled import DIVIDED, DIVIDED_LAYERS, DIVIDED_SHARE, PARTS, describe_divided, divide_parts

# Computes how much of a step's GPU time has an owning layer, and how much other tools saw launch by launch.

# Owners that name neither a module nor a part of the step.
UNNAMED = ("(graph)", "(outside)", "(step)", UNALIGNED)
SHARES = ["operator_share", "module_share", "aligned_launches", "aligned_share", "nsys_share"]
OWNER_COVERAGE_TABLE = Table(
    columns={
        "launches": Column(AMOUNT, "Launches per step (on a CPU: calls of operators).", "count"),
        "total_ns": Column(AMOUNT, "GPU time per step of all launches; on a CPU host time.", "ns", clock=GPU),
        "operator_share": Column(AMOUNT.or_missing, "Part of this time with a known operator.", "fraction", clock=GPU),
        "module_share": Column(
            AMOUNT.or_missing, "Part of this time with a known module, or another named owner.", "fraction", clock=GPU),
        "aligned_launches": Column(
            AMOUNT.or_missing, "Part of the kernels that were matched with a launch in torch's steps.", "fraction"),
        "aligned_share": Column(
            AMOUNT.or_missing, "Part of the kernels' GPU time that was matched with launches in torch's steps.",
            "fraction", clock=GPU),
        "nsys_share": Column(
            AMOUNT.or_missing, "Part of the kernels' GPU time that nsys timed launch by launch.",
            "fraction", "nsys", GPU),
        "unowned": Column(TEXT, "Operators with most of the time that has no module."),
    },
)  # fmt: skip
COLUMNS = [*OWNER_COVERAGE_TABLE.columns]


def make_owner_coverage(called: pd.DataFrame, joined: Joined | None) -> pd.DataFrame:
    """Return one row: launches and GPU time per step, and the shares of the time with an owner.

    `operator_share` and `module_share` are the shares of the time with a known operator, and with a module or another
    named owner. `aligned_launches`, `aligned_share` and `nsys_share` are shares of kernels, empty without other tools.
    `unowned` names the operators with the most time that has no named owner.

    Args:
        called: sums by owner, from layers.sum_by_owner or layers.apply_other_times.
        joined: launches of other tools; None without them.
    """
    ns, module = called["total_ns"], called["module"].astype("str")
    total, named = max(float(ns.sum()), 1.0), ~module.isin(UNNAMED)
    lacking = called[~named].groupby("operator", observed=True)["total_ns"].sum().sort_values(ascending=False)
    row = {
        "launches": called["launches"].sum(),
        "total_ns": ns.sum(),
        "operator_share": ns[called["operator"] != ""].sum() / total,
        "module_share": ns[named].sum() / total,
        "unowned": ", ".join(f"{name or 'no operator'} {share:.1%}" for name, share in (lacking / total)[:3].items()),
    }
    if joined is not None:
        kernels = joined.launches
        row["aligned_launches"], row["aligned_share"] = aligned_shares(kernels[BY] != "", kernels["ns"])
        if "nsys_ns" in kernels:
            _, row["nsys_share"] = aligned_shares(kernels["nsys_ns"].notna(), kernels["ns"])
    return pd.DataFrame([row]).reindex(columns=COLUMNS)


NODE = ["module", "direction"]
NEEDED = ["needed_flop", "needed_bytes"]
SUMS = ["launches", "total_ns", *NEEDED, "needed_ns"]
# What ncu counted, and what that says.
BOUNDED = [*roofline.SUMMED, "efficiency"]
COUNTED: Mapping[str, Column] = {
    **shared("counted_share", "bound"),
    **select(roofline.COLUMNS, *BOUNDED, kind=AMOUNT.or_missing),
    **interval_ends(roofline.COLUMNS, *BOUNDED, kind=AMOUNT.or_missing),
}
HELD = ["counted_share", "bound", *(f"efficiency{side}" for side in ("", LOW, HIGH))]
_MEASURED: Mapping[str, Column] = {
    **shared(*NEEDED),
    "needed_share": Column(
        AMOUNT.or_missing, "Part of the time in operators whose needs are known.", "fraction", clock=GPU),
    **COUNTED,
}  # fmt: skip
MEASURED = ["share", *_MEASURED]
LAYERS = ["module", "parent", "type", "inputs", "calls", "direction", "launches", "self_ns", "total_ns", *MEASURED]
# Owners in the order of a step; others come last.
DIRECTIONS = ["data", "transfer", *FORWARD, "loss", "recompute", "backward", "communication", "optimizer"]
# Relative error of sums of floating point numbers.
ROUNDING = 1e-6


def _adds_up(table: pd.DataFrame) -> str | None:
    """Return what is wrong with a tree whose children exceed their parents."""
    rows = table.set_index(NODE)
    below = table.groupby(["parent", "direction"])["total_ns"].sum().reindex(rows.index).fillna(0)
    wrong = (rows["self_ns"] + below - rows["total_ns"]).abs() > ROUNDING * table["total_ns"].max()
    if wrong.any():
        name, direction = rows.index[wrong.argmax()]
        return f"{name}, {direction}: total_ns is not that of itself and its children: rows are missing"
    return None


_TIMED = "by nsys where it was traced, else by torch; on a CPU host time"
TABLE = Table(
    columns={
        **shared("module", "parent", "type", "inputs", "direction"),
        "calls": Column(
            AMOUNT.or_missing, "Calls of the module per step; empty for owners that are not a module.",
            "count", "torch"),
        "launches": Column(
            AMOUNT, "Launches per step, with those of modules below (on a CPU: calls of operators).", "count"),
        "self_ns": Column(AMOUNT, f"GPU time per step without modules below: {_TIMED}.", "ns", clock=GPU),
        "total_ns": Column(AMOUNT, f"GPU time per step with modules below: {_TIMED}.", "ns", clock=GPU),
        "share": Column(AMOUNT, "Part of the time of all layers.", "fraction", clock=GPU),
        **_MEASURED,
    },
    optional={**shared(*STEP_COUNTS), **select(OF_COMPILED, DIVIDED_SHARE)},
    key=NODE,
    holds=_adds_up,
)  # fmt: skip
OPERATORS_TABLE = Table(
    columns={
        **shared("operator", "shapes", "caller", "module", "type", "direction"),
        "launches": Column(AMOUNT, "Launches per step (on a CPU: calls).", "count"),
        "total_ns": Column(AMOUNT, f"GPU time per step: {_TIMED}, without what the operator calls.", "ns", clock=GPU),
        "share": Column(AMOUNT, "Part of the time of all operators.", "fraction", clock=GPU),
        **_MEASURED,
    },
    optional={**shared(*STEP_COUNTS), **OF_COMPILED},
    key=OWNER,
)  # fmt: skip
OPERATORS = [*OPERATORS_TABLE.columns]


def sum_by_owner(parts: Iterable[pd.DataFrame], steps: int) -> pd.DataFrame:
    """Return one row per owner, per step: SUMS; `needed_ns` is the time of launches with known costs.

    On a CPU, a launch is a call of an operator, and its time is the operator's own time.

    parts: rows of the table of owners. steps: number of steps that they cover.
    """
    grouped = []
    for part in parts:
        needs = part[NEEDS]
        known = needs["needed_bytes"].notna()
        flop, ns = needs["needed_product_flop"] + needs["needed_other_flop"], part["ns"].astype("float64")
        columns = owner_columns(part)
        rows = part[columns].assign(launches=1.0, total_ns=ns, needed_flop=flop, needed_bytes=needs["needed_bytes"])
        rows["needed_ns"] = ns.where(known, 0.0)
        grouped.append(_summed(rows, columns))
    return mean_over_steps(grouped, steps)


def mean_over_steps(parts: Sequence[pd.DataFrame], steps: int) -> pd.DataFrame:
    """Return the mean per step of frames that sum_by_owner made for one step each."""
    whole = pd.concat(parts, ignore_index=True)
    table = _summed(whole, owner_columns(whole))
    return table.assign(**table[SUMS] / steps)


def apply_other_times(by_torch: pd.DataFrame, joined: Joined, copies: pd.DataFrame) -> pd.DataFrame:
    """Return sums by owner with times and launches from other tools.

    Args:
        by_torch: sum_by_owner of all launches.
        joined: kernel launches joined with the other tools.
        copies: sum_by_owner of launches that are not kernels.
    """
    columns = owner_columns(by_torch)
    kernels = joined.launches[columns].assign(launches=1.0, total_ns=joined.launches["ns"])
    timed = _summed(kernels, columns)
    timed[["launches", "total_ns"]] /= joined.steps
    known = by_torch.set_index(columns)
    needed = known["needed_ns"] / known["total_ns"].where(known["total_ns"] > 0)
    times = _summed(pd.concat([timed, copies[[*columns, "launches", "total_ns"]]], ignore_index=True), columns)
    # Operator costs do not depend on the chosen kernels.
    table = times.set_index(columns).join(known[NEEDED].assign(needed=needed), how="outer")
    table[["launches", "total_ns"]] = table[["launches", "total_ns"]].fillna(0.0)
    table["needed_ns"] = table["total_ns"] * table.pop("needed").fillna(0.0)
    return table.reset_index()[[*columns, *SUMS]]


def _summed(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return sums of all other columns by the columns `by`; a sum without any value is empty."""
    return table.groupby(list(by), sort=False, observed=True).sum(min_count=1).reset_index()


def operators_table(called: pd.DataFrame, joined: Joined, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return one row per operator with its shapes, caller, module and direction, longest first, per step.

    Args:
        called: sums by owner, from sum_by_owner or apply_other_times.
        joined: launches with counters, for bound and efficiency; None without them.
        peaks: measured rates by name, in byte/s and flop/s.
    """
    columns = OPERATORS
    if DIVIDED in called:
        columns, told = [*OPERATORS, *OF_COMPILED], describe_divided(called, OWNER, DIVIDED)
        called = _summed(called[[*OWNER, *SUMS]], OWNER).merge(told, on=OWNER)
    table = _shared(called, called["total_ns"].sum()).merge(count_work(joined, OWNER, peaks), on=OWNER, how="left")
    table["bound"] = table["bound"].fillna("")
    return table.sort_values("total_ns", ascending=False, kind="stable")[columns].reset_index(drop=True)


def layers(
    called: pd.DataFrame, modules: pd.DataFrame, steps: int, joined: Joined, peaks: Mapping[str, float]
) -> pd.DataFrame:
    """Return one row per module and direction, in call order, children after parents, per step.

    All values but `self_ns` include the modules below a module in the tree, whose root is WHOLE_STEP. `share` is
    relative to the whole step.

    Args:
        called, joined, peaks: as for operators.
        modules: rows of the table of called modules.
        steps: number of steps that they cover.
    """
    own = _summed(called[[*NODE, *SUMS]].astype(dict.fromkeys(NODE, "object")), NODE)
    table = _nodes(own, SUMS)
    table = table.merge(own[[*NODE, "total_ns"]].rename(columns={"total_ns": "self_ns"}), on=NODE, how="left")
    table["self_ns"] = table["self_ns"].fillna(0.0)
    columns = LAYERS
    if DIVIDED in called:
        columns, told = [*LAYERS, DIVIDED_SHARE], describe_divided(called, NODE, DIVIDED_LAYERS)
        table = table.merge(told, on=NODE, how="left")
    known = modules.drop_duplicates("module").set_index("module")
    table["parent"] = [parent_module(name) for name in table["module"]]
    for name in ("type", "inputs"):
        table[name] = [known[name].get(module, "") for module in table["module"]]
    table["calls"] = table["module"].map(known["calls"]).astype("float64") / steps
    table = _shared(table, table.loc[table["module"] == WHOLE_STEP, "total_ns"].sum())
    table = table.merge(_tree(joined, peaks), on=NODE, how="left")
    table["bound"] = table["bound"].fillna("")
    return _in_order(table, [*known.index, *called["module"]])[columns]


def _nodes(own: pd.DataFrame, sums: Sequence[str]) -> pd.DataFrame:
    """Return sums over each module and all modules below it."""
    return _summed(_spread_upwards(own)[[*NODE, *sums]], NODE)


def _spread_upwards(own: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of modules again for each module above them, the root's first."""
    paths = own["module"].map(path_to)
    deepest = int(paths.str.len().max()) if len(own) else 0
    parts = [own.assign(module=paths.str[depth])[paths.str.len() > depth] for depth in range(deepest)]
    return pd.concat(parts, ignore_index=True) if parts else own


def _shared(table: pd.DataFrame, total: float) -> pd.DataFrame:
    """Add shares of all time, and the share of a row's own time with known costs."""
    whole = table["total_ns"]
    return table.assign(share=whole / max(total, 1), needed_share=table["needed_ns"] / whole.where(whole > 0))


def _in_order(table: pd.DataFrame, modules: Iterable[str]) -> pd.DataFrame:
    """Return modules in call order, then others, and rows without module, children after parents."""
    rank: dict[str, int] = {}
    for place, name in enumerate(dict.fromkeys(modules)):
        for above in path_to(name):
            rank.setdefault(above, place)
    turn = {name: place for place, name in enumerate(DIRECTIONS)}
    order = [
        ([(rank[above], above) for above in path_to(name)], turn.get(direction, len(turn)), direction)
        for name, direction in zip(table["module"], table["direction"], strict=True)
    ]
    return table.iloc[sorted(range(len(table)), key=order.__getitem__)].reset_index(drop=True)


def _tree(joined: Joined, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COUNTED of each module and direction, including all modules below it."""
    if not joined.sets:
        return count_work(joined, NODE, peaks)
    parts = joined_step.part_totals(joined)
    paths, own_paths = joined.launches["module"].map(path_to), parts["module"].map(path_to)
    found = []
    for depth in range(int(max(one.str.len().max() for one in (paths, own_paths) if len(one)))):
        # No launch as a whole may be as deep as the parts of compiled ones.
        own = joined.launches.assign(module=paths.str[depth].astype("object").fillna(""))
        its = parts.assign(module=own_paths.str[depth].astype("object").fillna("")) if len(parts) else parts
        found.append(count_work(joined.of(own), NODE, peaks, its).query("module != ''"))
    return pd.concat(found, ignore_index=True)


def count_work(
    joined: Joined, by: Sequence[str], peaks: Mapping[str, float], parts: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return COUNTED of each group of launches, from rows of one launch configuration, each with its own bound.

    parts: of joined_step.part_totals.
    """
    if not joined.sets:
        return pd.DataFrame(columns=[*by, *COUNTED])
    if PARTS in joined.launches:
        rows = joined_step.totals(joined, [*by, PARTS, *CONFIGURATION])
        parts = joined_step.part_totals(joined) if parts is None else parts
        rows = pd.concat([rows[rows[PARTS] == ""], parts], ignore_index=True)
    else:
        rows = joined_step.totals(joined, [*by, *CONFIGURATION])
    held = roofline.bound_groups(rows, list(by), peaks)[[*by, *HELD]]
    return roofline.sums(rows, list(by)).merge(held, on=list(by))[[*by, *COUNTED]]


# Says of each row of a cell's tables in how many of the traced steps it launches anything, where steps differ.

OPERATOR = "operator"
KEYS = [*OWNER, "kernel", *GRID]
COUNT = "count"


@dataclass(frozen=True)
class StepRows:
    """What steps that differ launched: a row per step, owner and launch configuration, with KEYS and `step`.

    Where code was compiled, PARTS as well. steps: number of steps, also of those that launched nothing.
    """

    launched: pd.DataFrame
    steps: int

    def add_to_rows(self, table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
        """Return a table with IN_STEPS and OF_STEPS of its rows, which differ in the columns `by`."""
        keys = [name for name in by if name in KEYS]
        return self._joined(table, self.launched if "kernel" in keys else divide_parts(self.launched, []), keys)

    def add_to_tree(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a tree of layers with IN_STEPS and OF_STEPS, which count launches of modules below, too."""
        launched = divide_parts(self.launched, [])
        own = launched[[*NODE, RANGE_NAMES_STEP]].drop_duplicates().astype(dict.fromkeys(NODE, "object"))
        return self._joined(table, _spread_upwards(own), NODE)

    def _joined(self, table: pd.DataFrame, launched: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
        found = (
            launched.groupby(list(keys), sort=False, dropna=False, observed=True)[RANGE_NAMES_STEP]
            .nunique()
            .rename(IN_STEPS)
        )
        plain = table.astype(dict.fromkeys([name for name in keys if name in OWNER], "object"))
        counted = plain[list(keys)].merge(found.reset_index(), on=list(keys), how="left")[IN_STEPS]
        # A row without kernels, such as of copies, is not counted.
        return table.assign(**{IN_STEPS: counted.astype("Int64").to_numpy(), OF_STEPS: self.steps})


def step_rows_of_nsys(launches: pd.DataFrame, steps: int) -> StepRows:
    """Return what the steps of nsys launched; launches: of launches.differing_steps."""
    return StepRows(_plain(launches[_step_keys(launches)]).drop_duplicates(), steps)


def step_rows_of_torch(counted: Iterable[pd.DataFrame], steps: int) -> StepRows | None:
    """Return what the steps of torch launched; None if all launched the same; counted: from count_launches."""
    parts = list(counted)
    if not parts:
        return None
    keys = _step_keys(parts[0])
    of_row = [name for name in keys if name != RANGE_NAMES_STEP]
    sums = pd.concat(parts, ignore_index=True).groupby(keys, sort=False, dropna=False, observed=True)[COUNT].sum()
    table = sums.reset_index()
    held = table.groupby(of_row, sort=False, dropna=False)[COUNT].agg(["min", "max", "size"])
    alike = held["min"].eq(held["max"]) & held["size"].eq(steps)
    return None if alike.all() else StepRows(table[keys], steps)


def count_launches(part: pd.DataFrame) -> pd.DataFrame:
    """Return the number of kernels (on a CPU: calls of operators) by step and KEYS; part: rows of torch's launches."""
    rows = part[part["kind"].isin([KERNEL, OPERATOR]) & part[RANGE_NAMES_STEP].notna()].rename(
        columns={"name": "kernel"}
    )
    keys = _step_keys(rows)
    grouped = _plain(rows[keys]).groupby(keys, sort=False, dropna=False, observed=True)
    return grouped.size().rename(COUNT).reset_index()


def _step_keys(rows: pd.DataFrame) -> list[str]:
    return [*KEYS, RANGE_NAMES_STEP, *([PARTS] if PARTS in rows else [])]


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose texts are not categories, and whose numbers compare with those of other tables."""
    return rows.astype(dict.fromkeys([*owner_columns(rows), "kernel"], "object") | dict.fromkeys(GRID, np.float64))


# Makes a cell's table of kernels by owning layer: module, operator, launch configuration, time and counters.

LAYER_KERNELS_HELD = ["bound", "efficiency", "efficiency_low", "efficiency_high"]
LAYER_KERNELS_MEASURED = ["launches", "total_ns", "mean_ns", "share"]
LAYER_KERNELS_COLUMNS = [
    *OWNER,
    "class",
    "kernel",
    "function",
    *CONFIGURATION,
    *LAYER_KERNELS_MEASURED,
    *LAYER_KERNELS_HELD,
    *estimates.QUANTITIES,
    *counters.INTERVALS,
]
LAYER_KERNELS_TABLE = Table(
    columns={
        **shared(
            "operator", "shapes", "caller", "module", "type", "direction", "class", "kernel", "function", "mangled"),
        **shared("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", kind=COLUMNS_COUNT.or_missing),
        **shared("smem_static_bytes", "smem_dynamic_bytes"),
        "launches": Column(AMOUNT, "Launches per step.", "count"),
        "total_ns": Column(
            AMOUNT, "GPU time per step of these launches together: by nsys where it was traced, else by torch.",
            "ns", clock=GPU),
        "mean_ns": Column(AMOUNT, "Mean GPU time of a launch.", "ns", clock=GPU),
        "share": Column(AMOUNT, "Part of the GPU time of all kernels.", "fraction", clock=GPU),
        **shared("bound"),
        **select(roofline.COLUMNS, "efficiency"),
        **interval_ends(roofline.COLUMNS, "efficiency"),
        **select(counters.COLUMNS, "ncu_ns"),
        **select(roofline.COLUMNS, "dram_bytes", "l2_bytes"),
        **{
            name: column
            for name, column in counters.COLUMNS.items()
            if name not in ("ncu_ns", "dram_bytes", "l2_bytes", *counters.LATER)
        },
    },
    optional={**select(counters.COLUMNS, *counters.LATER), **shared(*STEP_COUNTS)},
    key=GROUPS,
)  # fmt: skip


def make_layer_kernels(rows: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COLUMNS per step, longest first; `share` is of all kernels, bound and efficiency of the mean launch.

    Rows that have STEP_COUNTS keep them.

    Args:
        rows: result of joined_step.kernels or of joined_step.sum_torch_launches.
        peaks: measured rates by name, in byte/s and flop/s.
    """
    found = rows.assign(share=rows["total_ns"] / max(rows["total_ns"].sum(), 1))
    launched = zip(found["kernel"].astype("str"), found["operator"].fillna("").astype("str"), strict=True)
    found["class"] = [kernel_classes.classify_launched(*one) for one in launched]
    found[LAYER_KERNELS_HELD] = roofline.bound_launches(rows, peaks)[LAYER_KERNELS_HELD]
    columns = [*LAYER_KERNELS_COLUMNS, *(name for name in STEP_COUNTS if name in found)]
    return found.sort_values("total_ns", ascending=False, kind="stable")[columns].reset_index(drop=True)


# Sums a cell's launches by layer, operator and kernel, from torch, nsys and ncu.

ALIGNED = ["step", "order", "kind", "name", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
           "smem_bytes", "ns"]  # fmt: skip


@dataclass(frozen=True)
class Others:
    """Files of other tools than torch; empty for tools that were not chosen.

    census: all launches of ncu's window, and its number of steps. sets: ncu's tables, in the order in which they count.
    nsys: its export, with the sidecar of its report. peaks: the GPU's measured peaks.
    """

    census: str = ""
    steps: int = 1
    sets: Sequence[str] = ()
    nsys: str = ""
    sidecar: str = ""
    peaks: str = ""


def name_others(given: Mapping[str, Any], steps: int) -> Others:
    """Return the files of other tools among a script's inputs; steps: of the window that ncu looked at."""
    return Others(
        census=given.get("census", ""),
        steps=steps,
        sets=as_list(given.get("sets", [])),
        nsys=given.get("trace_database", ""),
        sidecar=given.get("trace_database_sidecar", ""),
        peaks=given.get("peaks", ""),
    )


def write_layers(launches: str, modules: str, sidecar: str, others: Others, outputs: Mapping[str, str]) -> None:
    """Read owners, modules and the other tools' files; write `layers`, `operators`, `kernels`, `coverage`.

    sidecar: of torch's trace.
    """
    steps = count_profiled_steps(read_facts(sidecar, OF_SIDECAR))
    peaks = read_peaks(others.peaks) if others.peaks else {}
    nsys = _traced(others)
    found = (
        _of_torch(launches, steps) if nsys is None and not others.census else _of_tools(launches, steps, others, nsys)
    )
    seen = found.counted or Joined(pd.DataFrame(), steps)
    called = divide_parts(found.called, SUMS)
    operators = operators_table(called, seen, peaks)
    tree = layers(called, reading.read(modules, owners.MODULES), steps, seen, peaks)
    kernels = make_layer_kernels(found.kernels, peaks)
    if differ := found.differ:
        operators, tree = differ.add_to_rows(operators, OWNER), differ.add_to_tree(tree)
        kernels = differ.add_to_rows(kernels, joined_step.GROUPS)
    for name, table in (("operators", operators), ("layers", tree), ("kernels", kernels)):
        write_csv(table, outputs[name])
    write_csv(make_owner_coverage(called, found.timed), outputs["coverage"])


@dataclass(frozen=True)
class _Sums:
    """What tables are made of: sums by owner, and kernels by owner, per step.

    timed, counted: launches of other tools with times, and those with counters; None without other tools. differ: what
    each step launched, where steps differ.
    """

    called: pd.DataFrame
    kernels: pd.DataFrame
    timed: Joined | None = None
    counted: Joined | None = None
    differ: StepRows | None = None


def _of_tools(launches: str, steps: int, others: Others, nsys: pd.DataFrame | None) -> _Sums:
    """Return sums by owner with the times of other tools; where the steps of nsys differ, of all of these steps."""
    own = pd.concat(_parts(launches), ignore_index=True)
    by_torch = sum_by_owner([own], steps)
    copies = sum_by_owner([joined_step.select_copies(own)], steps)
    if nsys is None or not joined_step.traced_steps_differ(nsys):
        joined = join_tools(others, own, nsys)
        called = apply_other_times(by_torch, joined, copies)
        return _Sums(called, joined_step.kernels(joined), joined, joined)
    timed = joined_step.join_differing_steps(nsys, own)
    counted = joined_step.own_counted_step(join_tools(others, own, nsys), own) if others.census else timed
    kernels = joined_step.kernels(timed)
    if counted is not timed:
        kernels = joined_step.add_counters(kernels, joined_step.kernels(counted))
    called = apply_other_times(by_torch, timed, copies)
    return _Sums(called, kernels, timed, counted, step_rows_of_nsys(timed.launches, timed.steps))


def _traced(others: Others) -> pd.DataFrame | None:
    """Return the launches that nsys traced, step by step; None without a trace, and on a CPU."""
    if not others.nsys:
        return None
    facts = read_facts(others.sidecar, OF_SIDECAR)
    traced = launches.read_step_launches(others.nsys, facts.get("capture") == "run")
    return traced if len(traced) else None


def join_tools(others: Others, own: pd.DataFrame, nsys: pd.DataFrame | None) -> Joined:
    """Return the launches of ncu's window, else of a step of nsys; own: rows of the table of owners."""
    if not others.census:
        assert nsys is not None
        return joined_step.join_nsys_launches(nsys, own)
    sets = [reading.read(path, export_schema.TABLE) for path in others.sets]
    return joined_step.join_ncu_launches(export_schema.read_census(others.census), others.steps, sets, own, nsys)


def _of_torch(launches: str, steps: int) -> _Sums:
    """Return sums by owner and kernels from torch alone, read in parts, as launches may not fit into memory."""
    called, kernels, counts = [], [], []
    for part in _parts(launches):
        called.append(sum_by_owner([part], 1))
        kernels.append(joined_step.sum_torch_launches(part, steps))
        counts.append(count_launches(part))
    rows = pd.concat(kernels, ignore_index=True)
    sums = rows.groupby(joined_step.GROUPS, sort=False, dropna=False, observed=True)[["launches", "total_ns"]].sum()
    found = sums.reset_index().reindex(columns=rows.columns)
    found["mean_ns"] = found["total_ns"] / found["launches"]
    return _Sums(mean_over_steps(called, steps), found, differ=step_rows_of_torch(counts, steps))


def _parts(path: str) -> Iterator[pd.DataFrame]:
    """Read the needed columns of the table of owners in parts that fit into memory."""
    return (part[[*ALIGNED, *owner_columns(part), *NEEDS]] for part in reading.parts(path, owners.TABLE))
