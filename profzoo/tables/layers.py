"""Makes a cell's tables of layers and of operators: where a step's time goes, by module and by what it calls."""

from collections.abc import Iterable, Iterator, Mapping

import pandas as pd

from profzoo.files import write_csv
from profzoo.range_names import COMPILED, ROOT
from profzoo.reading import kinds
from profzoo.reading import tables as reading
from profzoo.reading.tables import Table
from profzoo.tools.torch import owners

# The root of the tree: below it are the network, other networks, and what is of none.
STEP = "(step)"
KEY = ["module", "type", "direction"]
CALL = ["operator", "shapes", "caller", *KEY]
LAYERS = ["module", "parent", "type", "inputs", "calls", "direction", "launches", "self_ns", "total_ns", "share"]
OPERATORS = [*CALL, "launches", "total_ns", "share"]


def _adds_up(table: pd.DataFrame) -> str | None:
    """What is wrong with a tree whose children are not all that their parents hold besides their own."""
    rows = table.set_index(["module", "direction"])
    below = table.groupby(["parent", "direction"])["total_ns"].sum().reindex(rows.index).fillna(0)
    wrong = rows["self_ns"] + below != rows["total_ns"]
    if wrong.any():
        name, direction = rows.index[wrong.argmax()]
        return f"{name}, {direction}: total_ns is not that of itself and its children: rows are missing"
    return None


TABLE = Table(
    columns=dict.fromkeys(["module", "parent", "type", "inputs", "direction"], kinds.TEXT)
    | {"calls": kinds.maybe(kinds.COUNT)}
    | dict.fromkeys(["launches", "self_ns", "total_ns"], kinds.COUNT)
    | {"share": kinds.AMOUNT},
    key=("module", "direction"),
    holds=_adds_up,
)
OPERATORS_TABLE = Table(
    columns=dict.fromkeys(CALL, kinds.TEXT)
    | dict.fromkeys(["launches", "total_ns"], kinds.COUNT)
    | {"share": kinds.AMOUNT},
    key=CALL,
)


def parent(module: str) -> str:
    """What holds a module; of the root nothing.

    >>> [parent(one) for one in ("layer1.0.conv2", "layer1", "(root)", "(loss)", "(compiled)", "(step)")]
    ['layer1.0', '(root)', '(step)', '(step)', '(root)', '']
    """
    if module == STEP:
        return ""
    before, point, _ = module.rpartition(".")
    if point:
        return before
    return STEP if module.startswith("(") and module != COMPILED else ROOT


def operators(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """A row an operator with its shapes, what called it, module and direction, the longest first.

    Sums over the window; on a CPU a launch is a call, and its time that of the operator without what it calls.

    parts: of the table of owners.
    """
    grouped = [part.groupby(CALL, sort=False)["ns"].agg(["size", "sum"]).reset_index() for part in parts]
    table = pd.concat(grouped, ignore_index=True).groupby(CALL, sort=False)[["size", "sum"]].sum().reset_index()
    table = table.rename(columns={"size": "launches", "sum": "total_ns"})
    table["share"] = table["total_ns"] / max(table["total_ns"].sum(), 1)
    return table.sort_values("total_ns", ascending=False, kind="stable")[OPERATORS].reset_index(drop=True)


def layers(called: pd.DataFrame, modules: pd.DataFrame) -> pd.DataFrame:
    """A row a module and direction, in the order of calls, each behind what holds it; sums over the window.

    called: the table of operators. modules: those that were called. `launches` and `total_ns` include what is below a
    module in the tree, whose root is STEP; `share` is of all.
    """
    own = called.groupby(["module", "direction"], sort=False)[["launches", "total_ns"]].sum()
    known = modules.drop_duplicates("module").set_index("module")
    # The network's in order of their calls, then others, and what is of none.
    rank = {name: place for place, name in enumerate(dict.fromkeys([*known.index, *called["module"]]))}
    totals: dict[tuple[str, str], list[int]] = {}
    for (module, direction), launches, ns in own.itertuples():
        name = module
        while name:
            sums = totals.setdefault((name, direction), [0, 0, 0])
            sums[0], sums[2] = sums[0] + launches, sums[2] + ns
            sums[1] += ns * (name == module)
            rank[name] = min(rank.get(name, len(rank)), rank[module])
            name = parent(name)
    rows = [
        {"module": name, "direction": direction, "launches": sums[0], "self_ns": sums[1], "total_ns": sums[2]}
        for (name, direction), sums in totals.items()
    ]
    table = pd.DataFrame(rows, columns=["module", "direction", "launches", "self_ns", "total_ns"])
    table["parent"] = [parent(name) for name in table["module"]]
    for name in ("type", "inputs"):
        table[name] = [known[name].get(module, "") for module in table["module"]]
    table["calls"] = pd.array([known["calls"].get(module) for module in table["module"]], dtype="Int64")
    table["share"] = table["total_ns"] / max(table.loc[table["module"] == STEP, "total_ns"].sum(), 1)
    order = [
        (_path(name, rank), direction) for name, direction in zip(table["module"], table["direction"], strict=True)
    ]
    return table.iloc[sorted(range(len(table)), key=order.__getitem__)][LAYERS].reset_index(drop=True)


def _path(module: str, rank: Mapping[str, int]) -> list[tuple[int, str]]:
    """Place and name of all that holds a module, from the root on, and of itself."""
    above = _path(parent(module), rank) if parent(module) else []
    return [*above, (rank[module], module)]


def main(launches: str, modules: str, outputs: Mapping[str, str]) -> None:
    """Read the table of owners and that of modules, write `layers` and `operators`."""
    called = operators(_texts(reading.parts(launches, owners.TABLE)))
    write_csv(called, outputs["operators"])
    write_csv(layers(called, reading.read(modules, owners.MODULES)), outputs["layers"])


def _texts(parts: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """What the table of operators takes of each part."""
    return (part[[*CALL, "ns"]] for part in parts)
