"""Splits a difference: the time that each part of the step, range, kernel class, layer and kernel adds or removes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.compare import comparison_table
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, GPU, NUMBER, TEXT, Column
from profzoo.io.common_columns import COMPARED_CELL
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.kernels import kernel_classes
from profzoo.range_names import REST
from profzoo.tables import cell_tables, kernel_table, layers
from profzoo.tables.kernel_table import KEYS
from profzoo.tables.schemas import CELL, TABLES
from profzoo.tables.steps_per_export import NEEDS, count_profiled_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.steps import steps as nsys_steps

SIDES = ("baseline", "candidate")
PART_LEVEL, RANGE_LEVEL, CLASS_LEVEL, LAYER_LEVEL, KERNEL_LEVEL = LEVELS = ("part", "range", "class", "layer", "kernel")
APPEARED, VANISHED = "appeared", "vanished"
# A kernel changes in grids, blocks, shared memory or code, or in the number of launches; a layer in the type of module.
CHANGED, LAUNCHED, RETYPED = "other configuration", "other number of launches", "other type"
# Of a step, less are rounding of sums.
LEAST_LAUNCHES = 1e-6
PARTS_TABLE = Table(
    columns={
        **COMPARED_CELL,
        "level": Column(TEXT, "`part` (of the step), `range`, `class` (of kernels), `layer` or `kernel`."),
        "range": Column(TEXT, "Part of the step, or direction of the layer."),
        "name": Column(TEXT, "Name of the part, range, class, layer or kernel."),
        "baseline_ns": Column(
            AMOUNT, "Time on the reference side: per step, or per sample where the sides have batches of different "
            "sizes.", "ns", clock=GPU),
        "candidate_ns": Column(AMOUNT, "The same of the candidate.", "ns", clock=GPU),
        "delta_ns": Column(NUMBER, "`candidate_ns` less `baseline_ns`.", "ns", clock=GPU),
        "delta_share": Column(NUMBER, "`delta_ns` over the step of the reference side.", "ratio", clock=GPU),
        "baseline_launches": Column(AMOUNT.or_missing, "Launches on the reference side, per step or sample.", "count"),
        "candidate_launches": Column(AMOUNT.or_missing, "The same of the candidate.", "count"),
        "change": Column(
            TEXT, "What else differs: one side alone has it, or the launch configuration or module type is another."),
    },
    key=["model", "phase", "baseline", "candidate", "level", "range", "name"],
)  # fmt: skip
COLUMNS = [*PARTS_TABLE.columns]


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
        shares = cell_tables.step_shares(pd.DataFrame([self.step])).iloc[0]
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


# Make the table of parts: contributions to each difference, from traces of every cell on each side.

Cell = tuple[str, str]
# What is known of a cell on one side: files by these names, of which there may be none of a tool.
FILES_OF = ("kernels", "steps", "layers")


def read_side(files: Mapping[str, str], time_ns: float, items: float = 1.0) -> TracedCell:
    """Read a traced cell on one side.

    files: paths of nsys's CSV of `kernels` and `steps`, and of the CSV of `layers`, if they exist.
    time_ns: unprofiled time in ns, to which the parts are scaled: of a step, or of one of its `items`.
    """
    step_ns = time_ns * items
    kernels, step = _read_nsys(files["kernels"], files["steps"], step_ns) if "kernels" in files else (None, {})
    found = layer_times(reading.read(files["layers"], layers.TABLE)) if "layers" in files else None
    return TracedCell(kernels, {"step_ns": step_ns, **step}, found, items)


def _read_nsys(kernels: str, steps: str, step_ns: float) -> tuple[pd.DataFrame, reading.Row]:
    cell, launches = cell_tables.cell_of(kernels), reading.read(kernels, nsys_tables.TABLE)
    classes = kernel_classes.classify_all(launches["kernel"].unique())
    table = kernel_table.join(launches, count_profiled_steps(read_facts(f"{kernels}.json", NEEDS)), [], classes)
    unprofiled = pd.DataFrame([{**cell, "step_ns": step_ns, "step_median_ns": step_ns}])
    of_trace = [(cell, reading.read(steps, nsys_steps.TABLE))]
    return table, cell_tables.steps(unprofiled, of_trace, TABLES["ranks"].empty()).iloc[0].to_dict()


def tabulate_contributions(
    compared: pd.DataFrame, seen: Mapping[str, Mapping[Cell, Mapping[str, str]]]
) -> pd.DataFrame:
    """Return the rows of all comparisons, columns contributions.COLUMNS.

    compared: the table of comparisons. seen: for each side, the files of each cell.
    """
    frames = []
    for row in compared.to_dict("records"):
        cell = (row["model"], row["phase"])
        sides = [
            read_side(
                seen.get(row[side], {}).get(cell, {}),
                row[f"{side}_ns"],
                row[f"{side}_items"] if row["per"] == comparison_table.SAMPLE else 1.0,
            )
            for side in SIDES
        ]
        frames.append(contribution_rows(*sides).assign(**{name: row[name] for name in (*CELL, *SIDES)}))
    whole = pd.concat(frames, ignore_index=True) if frames else PARTS_TABLE.empty()
    return whole[list(COLUMNS)]


def write_contribution_table(compared: str, files: Mapping[str, Mapping[str, Sequence[str]]], csv: str) -> None:
    """Read the table of comparisons and the tools' files of each side; write the table of parts."""
    seen: dict[str, dict[Any, dict[str, str]]] = {}
    for what, by_side in files.items():
        for side, paths in by_side.items():
            for path in paths:
                model, phase = cell_tables.cell_of(path).values()
                seen.setdefault(side, {}).setdefault((model.partition("@")[0], phase), {})[what] = path
    write_csv(tabulate_contributions(reading.read(compared, comparison_table.COMPARISON_TABLE), seen), csv)
