"""Splits a difference: the time that each part of the step, range, kernel class, layer and kernel adds or removes."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.compare import dictionary
from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.range_names import REST
from profzoo.tables import step_shares
from profzoo.tables.ncu_coverage import KEYS

SIDES = ("baseline", "candidate")
COLUMNS = {
    **dict.fromkeys(["model", "phase", "baseline", "candidate", "level", "range", "name"], column_types.TEXT),
    **dict.fromkeys(["baseline_ns", "candidate_ns"], column_types.AMOUNT),
    **dict.fromkeys(["delta_ns", "delta_share"], column_types.NUMBER),
    **dict.fromkeys(["baseline_launches", "candidate_launches"], column_types.or_missing(column_types.AMOUNT)),
    "change": column_types.TEXT,
}
PART_LEVEL, RANGE_LEVEL, CLASS_LEVEL, LAYER_LEVEL, KERNEL_LEVEL = LEVELS = ("part", "range", "class", "layer", "kernel")
APPEARED, VANISHED = "appeared", "vanished"
# A kernel changes in grids, blocks, shared memory or code, or in the number of launches; a layer in the type of module.
CHANGED, LAUNCHED, RETYPED = "other configuration", "other number of launches", "other type"
# Of a step, less are rounding of sums.
LEAST_LAUNCHES = 1e-6
PARTS_TABLE = Table(
    columns=COLUMNS,
    key=["model", "phase", "baseline", "candidate", "level", "range", "name"],
    about=dictionary.PARTS,
)


@dataclass(frozen=True)
class TracedCell:
    """A cell on one side.

    kernels: the cell's table of kernels under nsys; None without a trace. step: the unprofiled `step_ns` and, with a
    trace, the cell's row of the table of steps. layers: result of layer_times; None without a trace of torch. items:
    number by which times are divided: data samples per step if the sides have different numbers of them, else 1.
    """

    kernels: pd.DataFrame | None
    step: Mapping[str, float]
    layers: pd.DataFrame | None = None
    items: float = 1.0

    def parts(self) -> dict[str, float]:
        """Return the time of each part of the unprofiled step in ns; the parts add up to the step."""
        shares = step_shares.step_shares(pd.DataFrame([self.step])).iloc[0]
        return {name: float(share) * self.time_ns for name, share in shares.items()}

    @property
    def time_ns(self) -> float:
        """Return the time in ns of the unprofiled step, or of one of its data samples."""
        return self.step["step_ns"] / self.items

    def timed(self) -> pd.DataFrame:
        """Return the rows of kernels with `ns`, their parts of the step's time with kernels, which add up to that time.

        The times under nsys have another sum if kernels run side by side, or at other clock rates.
        """
        assert self.kernels is not None
        seen = self.kernels[self.kernels["total_ns"].notna()]
        return seen.assign(ns=seen["total_ns"] / seen["total_ns"].sum() * self._whole() if len(seen) else 0.0)

    def by_layer(self) -> pd.DataFrame:
        """Return the rows of layers; with a trace of nsys, their `ns` are scaled to the step's time with kernels."""
        assert self.layers is not None
        whole, seen = self._whole() if self.kernels is not None else 0.0, self.layers["ns"].sum()
        return self.layers.assign(ns=self.layers["ns"] * (whole / seen if whole and seen else 1 / self.items))

    def _whole(self) -> float:
        return self.parts()["kernels"] + self.parts()["communication"]


def layer_times(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per layer and direction, with the layer's own time per step.

    Columns: `name`, `range` (the direction), `type`, `launches`, `ns`.

    table: the table of layers, per step, in which the launches of a module include the modules below it.
    """
    below = table.groupby(["parent", "direction"])["launches"].sum()
    keys = pd.MultiIndex.from_frame(table[["module", "direction"]])
    own = table["launches"] - below.reindex(keys).fillna(0).to_numpy()
    found = table[["module", "direction", "type"]].set_axis(["name", "range", "type"], axis=1)
    found = found.assign(launches=own.where(own > LEAST_LAUNCHES, 0.0), ns=table["self_ns"])
    return found[(found["ns"] > 0) | (found["launches"] > 0)].reset_index(drop=True)


def contribution_rows(baseline: TracedCell, candidate: TracedCell) -> pd.DataFrame:
    """Return rows of COLUMNS without the names of cell and sides, each level with the largest change first.

    At level `part` the deltas add up to the difference of the steps. At every other level they add up to the difference
    of the time with kernels. Levels that were not traced on both sides are left out. `delta_share` is relative to the
    reference side's step. A kernel is identified by its name and range, a layer by its module and direction. `change`
    says whether only one side launches it, or whether the sides launch it differently.
    """
    sides = dict(zip(SIDES, (baseline, candidate), strict=True))
    frames = []
    if all(side.kernels is not None for side in sides.values()):
        rows = {name: side.timed() for name, side in sides.items()}
        by_level = ((RANGE_LEVEL, ["range"]), (CLASS_LEVEL, ["class"]), (KERNEL_LEVEL, ["range", "kernel"]))
        frames = [_compare_parts(sides), *(_compare_groups(rows, level, by) for level, by in by_level)]
    if all(side.layers is not None for side in sides.values()):
        frames.append(
            _compare_groups({name: side.by_layer() for name, side in sides.items()}, LAYER_LEVEL, ["range", "name"])
        )
    if not frames:
        return pd.DataFrame(columns=list(COLUMNS)[4:])
    found = pd.concat(frames, ignore_index=True)
    found["delta_ns"] = found["candidate_ns"] - found["baseline_ns"]
    found["delta_share"] = found["delta_ns"] / baseline.time_ns
    order = found.assign(_level=found["level"].map(LEVELS.index), _size=-found["delta_ns"].abs())
    order = order.sort_values(["_level", "_size", "range", "name"], kind="stable")
    return order[[name for name in COLUMNS if name in order]].reset_index(drop=True)


def _compare_parts(sides: Mapping[str, TracedCell]) -> pd.DataFrame:
    found = pd.DataFrame({f"{name}_ns": pd.Series(side.parts()) for name, side in sides.items()})
    found = found[(found > 0).any(axis=1)].rename_axis("name").reset_index()
    return found.assign(level=PART_LEVEL, range="", change="")


def _compare_groups(rows: Mapping[str, pd.DataFrame], level: str, by: list[str]) -> pd.DataFrame:
    columns: dict[str, pd.Series] = {}
    for side, frame in rows.items():
        groups = frame.fillna({"range": "", "class": ""}).groupby(by, sort=False)
        columns |= {f"{side}_ns": groups["ns"].sum(), f"{side}_launches": groups["launches"].sum()}
    found = pd.DataFrame(columns)
    told = {KERNEL_LEVEL: _compare_kernels, LAYER_LEVEL: _find_retyped}.get(level)
    found["change"] = _describe_changes({side: told(frame, by) for side, frame in rows.items()}) if told else ""
    found = found.reset_index()
    # Launches outside every part of the step have no range.
    names = found[by[-1]].replace("", REST) if level == RANGE_LEVEL else found[by[-1]]
    found = found.assign(level=level, name=names, range=found.get("range", ""))
    numbers = list(columns)
    return found.drop(columns=[name for name in by if name not in COLUMNS]).fillna(dict.fromkeys(numbers, 0.0))


def _compare_kernels(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return per kernel its launch configurations and its launches per step."""
    rows = rows.fillna({"range": ""})
    # Of no rows, as of a CPU, groups would have no sets.
    keys = pd.Series(list(rows[KEYS].itertuples(index=False, name=None)), rows.index, dtype="object")
    names = [rows[name] for name in by]
    return pd.DataFrame({CHANGED: keys.groupby(names).agg(frozenset), LAUNCHED: rows["launches"].groupby(names).sum()})


def _find_retyped(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the type of each layer."""
    return rows.groupby(by)[["type"]].first().set_axis([RETYPED], axis=1)


def _describe_changes(told: Mapping[str, pd.DataFrame]) -> pd.Series:
    """Describe the first differing column of each kernel or layer; numbers differ from half a launch on."""
    one, other = told["baseline"].align(told["candidate"], join="outer")
    said = pd.Series("", index=one.index)
    for name in reversed(one.columns):
        numbers = pd.api.types.is_numeric_dtype(one[name])
        differs = (one[name] - other[name]).abs() >= 0.5 if numbers else one[name] != other[name]
        said = said.mask(differs, name)
    return said.mask(~one.index.isin(told["baseline"].index), APPEARED).mask(
        ~one.index.isin(told["candidate"].index), VANISHED
    )
