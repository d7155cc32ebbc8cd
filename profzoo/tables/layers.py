"""Makes a cell's tables of layers and of operators: where a step's time goes, by module and by operator."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from profzoo.io import column_types
from profzoo.io.common_columns import STEP_COUNTS
from profzoo.io.csv_tables import Table
from profzoo.kernels.counters import HIGH, LOW
from profzoo.launches import joined_step
from profzoo.launches.joined_step import OWNER, Joined
from profzoo.op_costs.operators import COLUMNS as NEEDS
from profzoo.range_names import COMPILED, ROOT
from profzoo.tables import dictionary, roofline
from profzoo.tools.ncu.raw_page import CONFIGURATION

# The root of the tree. Below it are the network, other networks, and work outside of networks.
STEP = "(step)"
NODE = ["module", "direction"]
NEEDED = ["needed_flop", "needed_bytes"]
SUMS = ["launches", "total_ns", *NEEDED, "needed_ns"]
# What ncu counted, and what that says.
BOUNDED = [*roofline.SUMMED, "efficiency"]
COUNTED = ["counted_share", "bound", *BOUNDED, *(f"{name}{side}" for name in BOUNDED for side in (LOW, HIGH))]
HELD = ["counted_share", "bound", *(f"efficiency{side}" for side in ("", LOW, HIGH))]
MEASURED = ["share", *NEEDED, "needed_share", *COUNTED]
LAYERS = ["module", "parent", "type", "inputs", "calls", "direction", "launches", "self_ns", "total_ns", *MEASURED]
OPERATORS = [*OWNER, "launches", "total_ns", *MEASURED]
# Owners in the order of a step; others come last.
DIRECTIONS = ["data", "transfer", "forward", "loss", "recompute", "backward", "communication", "optimizer"]
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


_AMOUNTS = {name: column_types.or_missing(column_types.AMOUNT) for name in MEASURED} | {
    "share": column_types.AMOUNT,
    "bound": column_types.TEXT,
}
_STEP_COUNTS = dict.fromkeys(STEP_COUNTS, column_types.or_missing(column_types.COUNT))
TABLE = Table(
    columns=dict.fromkeys(["module", "parent", "type", "inputs", "direction"], column_types.TEXT)
    | {"calls": column_types.or_missing(column_types.AMOUNT)}
    | dict.fromkeys(["launches", "self_ns", "total_ns"], column_types.AMOUNT)
    | _AMOUNTS,
    optional=_STEP_COUNTS,
    key=NODE,
    holds=_adds_up,
    about=dictionary.LAYERS,
)
OPERATORS_TABLE = Table(
    columns=dict.fromkeys(OWNER, column_types.TEXT)
    | dict.fromkeys(["launches", "total_ns"], column_types.AMOUNT)
    | _AMOUNTS,
    optional=_STEP_COUNTS,
    key=OWNER,
    about=dictionary.OPERATORS,
)


def parent(module: str) -> str:
    """Return the module that holds a module; empty for the root.

    >>> [parent(one) for one in ("layer1.0.conv2", "layer1", "(root)", "(loss)", "(compiled)", "(step)")]
    ['layer1.0', '(root)', '(step)', '(step)', '(root)', '']
    """
    if module == STEP:
        return ""
    before, point, _ = module.rpartition(".")
    if point:
        return before
    return STEP if module.startswith("(") and module != COMPILED else ROOT


def path(module: str) -> list[str]:
    """Return all modules that hold a module, from the root on, and itself.

    >>> path("layer1.0")
    ['(step)', '(root)', 'layer1', 'layer1.0']
    """
    return [*(path(parent(module)) if parent(module) else []), module]


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
        rows = part[OWNER].assign(launches=1.0, total_ns=ns, needed_flop=flop, needed_bytes=needs["needed_bytes"])
        rows["needed_ns"] = ns.where(known, 0.0)
        grouped.append(_summed(rows, OWNER))
    return mean_over_steps(grouped, steps)


def mean_over_steps(parts: Sequence[pd.DataFrame], steps: int) -> pd.DataFrame:
    """Return the mean per step of frames that sum_by_owner made for one step each."""
    table = _summed(pd.concat(parts, ignore_index=True), OWNER)
    return table.assign(**table[SUMS] / steps)


def apply_other_times(by_torch: pd.DataFrame, joined: Joined, copies: pd.DataFrame) -> pd.DataFrame:
    """Return sums by owner with times and launches from other tools.

    Args:
        by_torch: sum_by_owner of all launches.
        joined: kernel launches joined with the other tools.
        copies: sum_by_owner of launches that are no kernels.
    """
    kernels = joined.launches[OWNER].assign(launches=1.0, total_ns=joined.launches["ns"])
    timed = _summed(kernels, OWNER)
    timed[["launches", "total_ns"]] /= joined.steps
    known = by_torch.set_index(OWNER)
    needed = known["needed_ns"] / known["total_ns"].where(known["total_ns"] > 0)
    times = _summed(pd.concat([timed, copies[[*OWNER, "launches", "total_ns"]]], ignore_index=True), OWNER)
    # Operator costs do not depend on the chosen kernels.
    table = times.set_index(OWNER).join(known[NEEDED].assign(needed=needed), how="outer")
    table[["launches", "total_ns"]] = table[["launches", "total_ns"]].fillna(0.0)
    table["needed_ns"] = table["total_ns"] * table.pop("needed").fillna(0.0)
    return table.reset_index()[[*OWNER, *SUMS]]


def _summed(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return sums of all other columns by the columns `by`; a sum without any value is empty."""
    return table.groupby(list(by), sort=False, observed=True).sum(min_count=1).reset_index()


def operators(called: pd.DataFrame, joined: Joined, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return one row per operator with its shapes, caller, module and direction, longest first, per step.

    Args:
        called: sums by owner, from sum_by_owner or apply_other_times.
        joined: launches with counters, for bound and efficiency; None without them.
        peaks: measured rates by name, in byte/s and flop/s.
    """
    table = _shared(called, called["total_ns"].sum()).merge(_counted(joined, OWNER, peaks), on=OWNER, how="left")
    table["bound"] = table["bound"].fillna("")
    return table.sort_values("total_ns", ascending=False, kind="stable")[OPERATORS].reset_index(drop=True)


def layers(
    called: pd.DataFrame, modules: pd.DataFrame, steps: int, joined: Joined, peaks: Mapping[str, float]
) -> pd.DataFrame:
    """Return one row per module and direction, in call order, children after parents, per step.

    All values but `self_ns` include the modules below a module in the tree, whose root is STEP. `share` is relative to
    the whole step.

    Args:
        called, joined, peaks: as for operators.
        modules: rows of the table of called modules.
        steps: number of steps that they cover.
    """
    own = _summed(called[[*NODE, *SUMS]].astype(dict.fromkeys(NODE, "object")), NODE)
    table = _nodes(own, SUMS)
    table = table.merge(own[[*NODE, "total_ns"]].rename(columns={"total_ns": "self_ns"}), on=NODE, how="left")
    table["self_ns"] = table["self_ns"].fillna(0.0)
    known = modules.drop_duplicates("module").set_index("module")
    table["parent"] = [parent(name) for name in table["module"]]
    for name in ("type", "inputs"):
        table[name] = [known[name].get(module, "") for module in table["module"]]
    table["calls"] = table["module"].map(known["calls"]).astype("float64") / steps
    table = _shared(table, table.loc[table["module"] == STEP, "total_ns"].sum())
    table = table.merge(_tree(joined, peaks), on=NODE, how="left")
    table["bound"] = table["bound"].fillna("")
    return _in_order(table, [*known.index, *called["module"]])[LAYERS]


def _nodes(own: pd.DataFrame, sums: Sequence[str]) -> pd.DataFrame:
    """Return sums over each module and all modules below it."""
    paths = own["module"].map(path)
    parts = [own.assign(module=paths.str[depth])[paths.str.len() > depth] for depth in range(paths.str.len().max())]
    return _summed(pd.concat([part[[*NODE, *sums]] for part in parts], ignore_index=True), NODE)


def _shared(table: pd.DataFrame, total: float) -> pd.DataFrame:
    """Add shares of all time, and the share of a row's own time with known costs."""
    whole = table["total_ns"]
    return table.assign(share=whole / max(total, 1), needed_share=table["needed_ns"] / whole.where(whole > 0))


def _in_order(table: pd.DataFrame, modules: Iterable[str]) -> pd.DataFrame:
    """Return modules in call order, then others, and rows without module, children after parents."""
    rank: dict[str, int] = {}
    for place, name in enumerate(dict.fromkeys(modules)):
        for above in path(name):
            rank.setdefault(above, place)
    turn = {name: place for place, name in enumerate(DIRECTIONS)}
    order = [
        ([(rank[above], above) for above in path(name)], turn.get(direction, len(turn)), direction)
        for name, direction in zip(table["module"], table["direction"], strict=True)
    ]
    return table.iloc[sorted(range(len(table)), key=order.__getitem__)].reset_index(drop=True)


def _tree(joined: Joined, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COUNTED of each module and direction, including all modules below it."""
    if not joined.sets:
        return _counted(joined, NODE, peaks)
    paths = joined.launches["module"].map(path)
    found = []
    for depth in range(int(paths.str.len().max())):
        own = joined.launches.assign(module=paths.str[depth].fillna(""))
        found.append(_counted(joined.of(own), NODE, peaks).query("module != ''"))
    return pd.concat(found, ignore_index=True)


def _counted(joined: Joined, by: Sequence[str], peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COUNTED of each group of launches, from rows of one launch configuration, each with its own bound."""
    if not joined.sets:
        return pd.DataFrame(columns=[*by, *COUNTED])
    rows = joined_step.totals(joined, [*by, *CONFIGURATION])
    held = roofline.bound_groups(rows, list(by), peaks)[[*by, *HELD]]
    return roofline.sums(rows, list(by)).merge(held, on=list(by))[[*by, *COUNTED]]
