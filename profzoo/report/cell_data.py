"""Compact JSON data from which the browser draws a cell's roofline, tables, tree and timeline."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from profzoo.figures.palette import (
    CLASS_COLOURS,
    CYCLE,
    LABEL_COLOURS,
    NEUTRAL,
    PART_COLOURS,
    STEP_COLOURS,
    TRACK_COLOURS,
)
from profzoo.formatting import format_ns, number
from profzoo.json_types import JsonObject
from profzoo.kernels import kernel_classes, short_names
from profzoo.range_names import WHOLE_STEP as STEP
from profzoo.report import timeline_data
from profzoo.tools.nsys.steps.steps import CAUSES
from profzoo.tools.user_ranges import SEPARATOR

if TYPE_CHECKING:
    from profzoo.tools.nsys.pictures.median_step import Timeline
    from profzoo.tools.nsys.pictures.tracks import Track


# Prepares a cell's tree of ranges that the program opened itself for the page.


def select_tree(ranges: pd.DataFrame) -> pd.DataFrame | None:
    """Return the rows of the page's tree: `name`, `parent`, `type`, `direction`, `ns`, `own`, `share`, and its bound.

    Time is that of launches, or where no tool saw any the host's. Of ranges of both NVTX and record_function each tree
    is below the name of its kind.

    ranges: the cell's rows of the table of ranges; None is returned where none is of the program's own.
    """
    own = ranges[ranges["api"] != ""] if "api" in ranges else ranges.iloc[:0]
    if own.empty:
        return None
    several = own["api"].nunique() > 1
    known = own["ns_per_step"].notna()
    steps = own[own["range"] == STEP].set_index("api")["cpu_ns_per_step"]
    prefix = own["api"] + SEPARATOR if several else pd.Series("", index=own.index)
    outermost = own["parent"] == STEP
    table = own.assign(
        name=prefix + own["range"],
        parent=(prefix + own["parent"]).where(~outermost, own["api"] if several else STEP),
        type=[_describe(row) for row in own.itertuples()],
        direction="GPU time",
        ns=own["ns_per_step"].where(known, own["cpu_ns_per_step"]),
        own=own["self_ns_per_step"],
        share=own["share"].where(known, own["cpu_ns_per_step"] / own["api"].map(steps)),
    )
    table.loc[(own["clock"] == "cpu").to_numpy(), "direction"] = "CPU time"
    whole = own["range"] == STEP
    if several:
        table.loc[whole, ["name", "parent", "type"]] = [(api, STEP, "") for api in own.loc[whole, "api"]]
    return table[table["ns"].notna()].reset_index(drop=True)


def _describe(row: pd.Series) -> str:
    """Say how often a range was opened, and how long it was open on the host."""
    if pd.isna(row.calls_per_step) or row.range == STEP:
        return ""
    times = f"{number(row.calls_per_step)}× per step" if row.calls_per_step else "opened earlier"
    return f"{times}, {format_ns(row.cpu_ns_per_step)} of CPU time"


# Significant digits of numbers in the page.
DIGITS = 4
# The most rows of a cell's table in the page, the longest times first.
MAX_ROWS = 10_000
CLASS, LEVEL = "class", "level"
FLOP_COLUMNS = ("fp64_flop", "fp32_flop", "fp16_flop", "tensor_bf16_flop", "tensor_fp16_flop", "tensor_tf32_flop",
        "tensor_fp8_flop", "tensor_int8_flop", "tensor_fp64_flop")  # fmt: skip
KERNEL_COLUMNS = ("name", "range", "class", "grid", "block", "launches", "ns", "share", "bound", "efficiency",
        "occupancy", "occupancy_limit", "bytes", "flop", "l2_hit", "registers")  # fmt: skip
LAYER_COLUMNS = ("name", "type", "direction", CLASS, "launches", "ns", "share", "bound", "efficiency", "bytes", "flop")
TREE_COLUMNS = ("name", "parent", "type", "direction", "ns", "own", "share", "bound", "efficiency", "divided")
# Values of a table by column: numbers and None, or distinct texts (`words`) and each row's place in these (`places`).
ColumnData = dict[str, Any]


def page_data(
    peaks: pd.DataFrame | None, perfetto: Mapping[str, str], titles: Mapping[str, str] = MappingProxyType({})
) -> Markup:
    """Return the data that all cells share: colours by meaning, measured peaks, and the address of Perfetto's page.

    titles: meanings of the headings of lists.
    """
    rates = {} if peaks is None else dict(zip(peaks["peak"], peaks["rate"], strict=True))
    causes = [f"idle: {cause}" for cause in CAUSES]
    return pack_json({"classes": CLASS_COLOURS, "parts": PART_COLOURS, "step": STEP_COLOURS, "causes": causes,
                   "peaks": {name: _round_number(rate) for name, rate in rates.items()},
                   "perfetto": perfetto.get("address"), "titles": dict(titles)})  # fmt: skip


def cell_block(tables: Mapping[str, pd.DataFrame], timeline: "Timeline | None", on_cpu: bool = False) -> Markup | None:
    """Return the JSON data of a cell; None if there is nothing to draw.

    tables: the cell's rows of the tables of kernels, roofline and layers, if they exist. on_cpu: whether the cell ran
    on a CPU.
    """
    block: dict[str, object] = {}
    kernels, layers = tables.get("kernels"), tables.get("layers")
    full: list[str] = [] if kernels is None else list(kernels["kernel"].unique())
    in_step = list(timeline["names"]) if timeline else []
    traced = _gpu_names(timeline) if timeline else []
    short = short_names.shorten_names([*full, *traced])
    if kernels is not None and len(kernels):
        block["kernels"] = _kernel_columns(kernels, tables.get("roofline"), short)
    if layers is not None and len(layers):
        block["layers"] = _layer_columns(layers)
        times = {"ns": layers["total_ns"], "own": layers["self_ns"], "divided": _column(layers, "divided_share")}
        block["tree"] = _table(TREE_COLUMNS, layers.assign(name=layers["module"], **times))
    # Of the table of ranges, those that the program opened itself.
    if (own := tables.get("ranges")) is not None and (tree := select_tree(own)) is not None:
        block["ranges"] = _table(TREE_COLUMNS, tree)
    if timeline:
        # The table of kernels may know operators, which tell more than names.
        known = {} if kernels is None else dict(zip(kernels["kernel"], kernels["class"], strict=True))
        classes = {name: known.get(name) or kernel_classes.classify(name) for name in traced}
        shown = [short.get(name, name) for name in in_step]
        tracks = colour_tracks(timeline.get("tracks", ()))
        drawn = {"names": shown, "classes": [classes.get(name, "") for name in in_step], "tracks": tracks}
        block["timeline"] = timeline_data.fold_timeline({**timeline, **drawn})
    return pack_json(block | ({"clock": "cpu"} if on_cpu else {})) if block else None


def colour_tracks(tracks: "Sequence[Track]") -> list[JsonObject]:
    """Return the tracks with `colours`, one per label; a value without a label has the colour of its track.

    A label has one colour in all tracks.

    >>> track = {"unit": "", "top": None, "peak": None, "spans": []}
    >>> first = {**track, "name": "calls: main thread", "labels": ["copy on the device", "poll", "read"]}
    >>> second = {**track, "name": "calls: pt_autograd_0", "labels": ["read", "gemm", "poll"]}
    >>> [one["colours"] for one in colour_tracks([first, second])]
    [['#bbbbbb', '#4c72b0', '#dd8452'], ['#dd8452', '#56b4e9', '#4c72b0']]
    """
    labels = dict.fromkeys(label for track in tracks for label in track["labels"] if label)
    colours = {label: known for label in labels if (known := _known_colour(label))}
    others = (label for label in labels if label not in colours)
    colours |= {label: CYCLE[place % len(CYCLE)] for place, label in enumerate(others)}
    return [
        {**track, "colours": [colours.get(label, _track_colour(track["name"])) for label in track["labels"]]}
        for track in tracks
    ]


def _known_colour(label: str) -> str | None:
    return LABEL_COLOURS.get(label) or (LABEL_COLOURS["copy"] if label.startswith("copy ") else None)


def _track_colour(name: str) -> str:
    return next((colour for beginning, colour in TRACK_COLOURS.items() if name.startswith(beginning)), NEUTRAL)


def pack_json(block: JsonObject) -> Markup:
    """Return JSON text that is safe within a script element of the page."""
    text = json.dumps(block, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _gpu_names(timeline: "Timeline") -> list[str]:
    """Return the names of the GPU operations in a timeline."""
    places = {row[2] for rows in timeline["streams"].values() for row in rows}
    return [timeline["names"][place] for place in sorted(places)]


def _kernel_columns(kernels: pd.DataFrame, roofline: pd.DataFrame | None, short: Mapping[str, str]) -> ColumnData:
    """Return columns with a row per launch configuration and range, longest first."""
    table = kernels.sort_values("total_ns", ascending=False, kind="stable").head(MAX_ROWS)
    given = table.reindex(columns=[*table.columns, *(name for name in FLOP_COLUMNS if name not in table)])
    counted = given[list(FLOP_COLUMNS)].notna().any(axis=1)
    made = pd.DataFrame(
        {
            "name": given["kernel"].map(short),
            "range": given["range"],
            "class": given["class"],
            "grid": _format_dimensions(given, "grid"),
            "block": _format_dimensions(given, "block"),
            "launches": given["launches"],
            "ns": given["total_ns"],
            "share": given["share"],
            "flop": given[list(FLOP_COLUMNS)].sum(axis=1).where(counted) * given["launches"],
            "bytes": _column(given, "dram_bytes") * given["launches"],
            "occupancy": _column(given, "occupancy_pct") / 100,
            "occupancy_limit": _column(given, "occupancy_limit_pct") / 100,
            "l2_hit": _column(given, "l2_hit_pct") / 100,
            "registers": _column(given, "registers"),
        }
    )
    made[["bound", "efficiency"]] = _bounds_and_efficiencies(given, roofline)
    return _table(KERNEL_COLUMNS, made)


def _bounds_and_efficiencies(kernels: pd.DataFrame, roofline: pd.DataFrame | None) -> np.ndarray:
    """Return bound and efficiency of each row, by the roofline table: an object array (rows, 2)."""
    keys = ["mangled", "range", "grid_x", "grid_y", "grid_z"]
    none = np.full((len(kernels), 2), None, dtype=object)
    if roofline is None or not set(keys) <= set(kernels):
        return none
    launches = roofline[roofline[LEVEL] == "launch"].drop_duplicates(keys)
    if launches.empty:
        return none
    same = {name: kernels[name].dtype for name in keys[2:]}
    found = kernels[keys].merge(launches[[*keys, "bound", "efficiency"]].astype(same), on=keys, how="left")
    return np.asarray(found[["bound", "efficiency"]].to_numpy(dtype=object))


def _layer_columns(layers: pd.DataFrame) -> ColumnData:
    """Return columns with a row per direction and module that launches kernels itself, longest own time first."""
    own = layers[layers["self_ns"] > 0].sort_values("self_ns", ascending=False, kind="stable").head(MAX_ROWS)
    made = own.assign(name=own["module"], ns=own["self_ns"], share=own["share"] * own["self_ns"] / own["total_ns"])
    whole = made["self_ns"] >= 0.99 * made["total_ns"]
    made["bytes"] = _column(made, "dram_bytes").where(whole)
    made["flop"] = (_column(made, "simt_flop") + _column(made, "tensor_flop")).where(whole)
    return _table(LAYER_COLUMNS, made.assign(**{CLASS: ""}))


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    return table[name] if name in table else pd.Series(np.nan, index=table.index)


def _format_dimensions(table: pd.DataFrame, what: str) -> pd.Series:
    """Format three dimensions as text, without trailing ones.

    >>> _format_dimensions(pd.DataFrame({"grid_x": [8, 8], "grid_y": [1, 1], "grid_z": [1, 4]}), "grid").to_list()
    ['8', '8×1×4']
    """
    sizes = [_column(table, f"{what}_{axis}") for axis in "xyz"]
    texts = [size.map(lambda value: "" if pd.isna(value) else f"{value:.0f}") for size in sizes]
    joined = texts[0] + "×" + texts[1] + "×" + texts[2]
    return joined.str.replace(r"(×1?)+$", "", regex=True)


def _table(columns: Sequence[str], table: pd.DataFrame) -> ColumnData:
    """Return columns of values; texts become indices into a list of distinct texts."""
    found: ColumnData = {}
    for name in columns:
        values = table[name] if name in table else pd.Series(None, index=table.index, dtype=object)
        if pd.api.types.is_numeric_dtype(values) or name == "efficiency":
            found[name] = [None if pd.isna(value) else _round_number(value) for value in values]
        else:
            texts = values.fillna("").astype("str")
            codes, words = pd.factorize(texts)
            found[name] = {"words": list(words), "places": codes.tolist()}
    return found


def _round_number(value: float) -> float:
    """Round a number to DIGITS significant digits; an int if it is whole.

    >>> _round_number(123456.7), _round_number(0.0123456)
    (123500, 0.01235)
    """
    if not np.isfinite(value):
        return 0
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) else rounded
