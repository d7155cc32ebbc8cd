"""Says what holds each cell and its top kernels back, by the rules of data/verdicts.yaml, with the evidence."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from workflow.scripts.lib.cell_tables import CELL
from workflow.scripts.lib.kernel_classes import classify
from workflow.scripts.lib.ncu_tables import function_name
from workflow.scripts.lib.nsys_steps import CAUSES

RULES_FILE = Path(__file__).parents[2] / "data" / "verdicts.yaml"
# Of ncu's own advice, so much a cell.
ADVICE = 5
COLUMNS = [
    *CELL, "level", "class", "function", "rank", "verdict", "metric", "value", "threshold", "evidence", "cured", "gain",
    "limit", "next_step", "settings", "by", "source",
]  # fmt: skip
NOTHING, UNDECIDED = "nothing stands out", "undecided"
OURS, NCU = "profzoo", "ncu"
KERNEL = ["class", "function"]
LAUNCH_LESS = "launch less first, as the CPU would hold the step back: a larger batch, CUDA graphs; then "
# Causes of idleness that fewer or larger launches cure.
LAUNCHING = ("latency", "launch", "host")


@functools.cache
def rules() -> Mapping[str, Any]:
    """The rules with their floors and traits."""
    return yaml.safe_load(RULES_FILE.read_text())


def table(
    steps: pd.DataFrame,
    kernels: pd.DataFrame,
    roofline: pd.DataFrame | None,
    peaks: Mapping[str, float],
    advice: Mapping[tuple[str, str], pd.DataFrame],
    given: Mapping[str, Any],
) -> pd.DataFrame:
    """COLUMNS: the verdicts of each cell, the largest gain first, then those of its kernels.

    Args:
        steps, kernels, roofline: the tables of these names; without roofline, verdicts that need counters are not
            given. peaks: rates by name, flop/s. advice: ncu's details pages, by cell.
        given: as `rules` has them.

    A cell to which no rule applies has NOTHING, one whose evidence is below a floor UNDECIDED with the reason. `limit`
    is the gain at which the CPU, which launches as many kernels as before, holds the step back; no gain is above it.
    `settings`, in the words of models.run, follow the advice at once.
    """
    rows: list[dict[str, Any]] = []
    for cell, step in steps.groupby(CELL, sort=False):
        # Of several processes the one that keeps its GPU busiest says what the cell is like.
        where = step.loc[step["busy_ns"].idxmax()]
        launches = _of(kernels, cell)
        traits = with_traits(launches, _of(roofline, cell), given["traits"], peaks)
        found = [
            *_of_step(where, given),
            *_of_kernels(traits, where, given, "cell"),
            *_uncounted(traits, given["floors"]["counted"]),
        ]
        # What cannot be told comes before what is worth less than it may be.
        everything = sorted(found, key=lambda row: -(row["gain"] or row.pop("potential", 1.0)))
        everything = everything or [_nothing(where, roofline is not None)]
        for group in (everything, _of_each(traits, where, given), _of_ncu(advice.get(cell))):
            rows += [
                {"by": OURS, **dict(zip(CELL, cell, strict=True)), **row, "rank": rank}
                for rank, row in enumerate(group, 1)
            ]
    return pd.DataFrame(rows, columns=COLUMNS)


def with_traits(
    kernels: pd.DataFrame, roofline: pd.DataFrame | None, traits: Mapping[str, Any], peaks: Mapping[str, float]
) -> pd.DataFrame:
    """The rows of one cell's kernel table, with the time that has each trait, and the part of it that a cure saves.

    Columns added: for each trait `{trait}_ns`, and `{trait}_saved_ns` where the saving depends on the launch;
    `counted_ns`, the time of launches with counters. Traits exclude each other: a small grid comes first.
    """
    table = kernels.copy()
    total = table["total_ns"].fillna(0.0)
    # Blocks that each multiprocessor gets; not known without ncu.
    known = table.reindex(columns=["multiprocessors"]).iloc[:, 0]
    blocks = table["grid_x"] * table["grid_y"] * table["grid_z"] / known
    small = blocks.lt(traits["small_grid"]["blocks_below"])
    bound, efficiency = pd.Series("", table.index), pd.Series(float("nan"), table.index)
    if roofline is not None and len(roofline):
        held = roofline[roofline["level"] == "launch"]
        bound, efficiency = held["bound"].fillna("").set_axis(table.index), held["efficiency"].set_axis(table.index)
    near = efficiency.ge(traits["at_the_roof"]["efficiency_at_least"])
    far = efficiency.lt(traits["far_from_the_roof"]["efficiency_below"])
    when = {
        "small_grid": small & ~near,
        "memory": near & bound.isin(("dram", "l2")),
        "simt": near & (bound == "simt"),
        "tensor": near & (bound == "tensor"),
        "underused": far & ~small,
    }
    for name, holds in when.items():
        table[f"{name}_ns"] = total.where(holds, 0.0)
    # As many blocks as there are multiprocessors would have taken no longer.
    table["small_grid_saved_ns"] = table["small_grid_ns"] * (1 - blocks.clip(upper=1).fillna(1))
    roof = traits["at_the_roof"]["efficiency_at_least"]
    table["underused_saved_ns"] = table["underused_ns"] * (1 - efficiency.fillna(roof) / roof)
    if {"fp32", "tf32"} <= set(peaks):
        table["simt_saved_ns"] = table["simt_ns"] * max(1 - peaks["fp32"] / peaks["tf32"], 0.0)
    table["counted_ns"] = total.where(efficiency.notna(), 0.0)
    return table


def shares(steps: pd.DataFrame) -> pd.DataFrame:
    """Shares of the unprofiled step, which add up to one: busy, copy, communication, and idle_ by cause.

    How busy the GPU is follows from its busy time and the unprofiled step; what it waits for, and what it is busy with,
    from the proportions under nsys.
    """
    busy = steps["busy_share"]
    exposed = (steps["communication_ns"] - steps["overlap_ns"] - steps["waiting_ns"]).clip(lower=0)
    working = steps["busy_ns"] - steps["waiting_ns"]
    within = busy / working.where(working > 0, 1)
    table = pd.DataFrame({"copy": steps["copy_ns"] * within, "communication": exposed * within})
    table.insert(0, "busy", busy - table.sum(axis=1))
    whole = steps["idle_ns"].where(steps["idle_ns"] > 0, 1)
    for cause in CAUSES:
        table[f"idle_{cause}"] = (1 - busy) * steps[f"idle_{cause}_ns"] / whole
    return table


def amdahl(share: float, cured: float) -> float:
    """How many times as fast the whole gets, when the cured part of a share of its time goes (Amdahl 1967).

    >>> amdahl(0.5, 1)
    2.0
    """
    return 1 / max(1 - share * cured, 1e-9)


def host_limit(step: pd.Series, most: float) -> float:
    """How many times as fast a step gets by shorter kernels, before it waits for the CPU all the time; at least 1.

    Under nsys, which slows the CPU down, so that this errs on the low side. Infinite where it is not known: beyond so
    many times the unprofiled step, or where `host_ns` is empty.
    """
    if not step["host_ns"] > 0 or _stretch(step) > most:
        return float("inf")
    return max(step["wall_ns"] / step["host_ns"], 1.0)


def _stretch(step: pd.Series) -> float:
    """A step under nsys over the unprofiled one."""
    return float(step["wall_ns"] / step["step_ns"])


def _of_step(step: pd.Series, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Verdicts on what the GPU waits for, as shares of the unprofiled step."""
    found = shares(step.to_frame().T.infer_objects()).iloc[0]
    idle = 1 - step["busy_share"]
    found["idle_launching"] = sum(found[f"idle_{cause}"] for cause in LAUNCHING)
    here = [rule for rule in given["rules"] if rule["of"] == "step"]
    evidence = f"steps.csv: process {step['process']:.0f}"
    doubt = _doubt(step, given["floors"])
    if doubt:
        measured, why, advice = doubt
        if idle >= min(rule["at_least"] for rule in here):
            yield {
                "level": "cell", "verdict": UNDECIDED, **measured, "evidence": evidence, "gain": None,
                "potential": amdahl(idle, 1),
                "next_step": f"the GPU idles {idle:.0%} of the step, but {why}, so what it waits for is not told: "
                f"{advice}",
            }  # fmt: skip
        return
    for rule in here:
        if found[rule["share"]] >= rule["at_least"]:
            yield _held(_for_short(rule, step), found[rule["share"]], rule["cured"], "cell", evidence)


def _for_short(rule: Mapping[str, Any], step: pd.Series) -> Mapping[str, Any]:
    """The rule with the advice that fits a step in which what it is about takes little time."""
    short = rule.get("short")
    if short and step[short["column"]] < short["below"]:
        return {**rule, "next": short["next"], "settings": None}
    return rule


def _doubt(step: pd.Series, floors: Mapping[str, float]) -> tuple[dict[str, Any], str, str] | None:
    """Why a step's idle time may be another's doing: metric, value and threshold; in words; and what to do."""
    stretch, unsteady = _stretch(step), step["step_ns"] / step["step_median_ns"]
    if stretch > floors["stretch"]:
        measured = {"metric": "step under nsys / unprofiled", "value": stretch, "threshold": floors["stretch"]}
        return measured, f"nsys stretches it {stretch:.1f} times", "raise nsys.window, or quiet the machine"
    if unsteady > floors["steady"]:
        measured = {"metric": "unprofiled step, mean / median", "value": unsteady, "threshold": floors["steady"]}
        advice = "quiet the machine and measure again; data that comes in bursts looks the same"
        return measured, f"without a profiler its mean is {unsteady:.1f} times its median", advice
    return None


def _of_kernels(
    traits: pd.DataFrame,
    step: pd.Series,
    given: Mapping[str, Any],
    level: str,
    total: float | None = None,
    least: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Verdicts on launches with a trait; least: of the subject's own time, instead of the rule's share of the step."""
    total = traits["total_ns"].sum() if total is None else total
    if not total:
        return
    busy, limit = step["busy_share"], host_limit(step, given["floors"]["stretch"])
    own = max(traits["total_ns"].sum() / total * busy, 1e-12)
    for rule in given["rules"]:
        column = f"{rule['share']}_ns"
        if rule["of"] != "kernels" or column not in traits:
            continue
        share = traits[column].sum() / total * busy
        if share < (rule["at_least"] if least is None else least * own):
            continue
        cured = rule["cured"]
        if isinstance(cured, str):
            saved = f"{rule['share']}_saved_ns"
            cured = traits[saved].sum() / traits[column].sum() if saved in traits else None
        table = (
            "kernels.csv: grid, multiprocessors" if rule["share"] == "small_grid" else "roofline.csv: bound, efficiency"
        )
        row = _held(rule, share, cured, level, table)
        if least is not None:
            row["threshold"] = least * own
        if rule["launches"] == "kept" and limit < row["gain"]:
            row |= {"gain": limit, "limit": limit, "next_step": LAUNCH_LESS + row["next_step"]}
        yield row


def _of_each(traits: pd.DataFrame, step: pd.Series, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Verdicts on each kernel that takes long enough, the largest gain first."""
    total = traits["total_ns"].sum()
    found: list[dict[str, Any]] = []
    for (kind, function), own in traits.groupby(KERNEL, sort=False):
        if total and own["total_ns"].sum() / total * step["busy_share"] >= given["floors"]["kernel"]:
            # A kernel has the trait that half of its time has.
            rows = _of_kernels(own, step, given, "kernel", total, least=0.5)
            found += ({"class": kind, "function": function, **row} for row in rows)
    return sorted(found, key=lambda row: -(row["gain"] or 0))


def _held(rule: Mapping[str, Any], share: float, cured: float | None, level: str, evidence: str) -> dict[str, Any]:
    return {
        "level": level, "verdict": rule["verdict"], "metric": f"share of the step: {rule['share']}", "value": share,
        "threshold": rule["at_least"], "evidence": evidence, "cured": cured,
        "gain": 1.0 if cured is None else amdahl(share, cured), "next_step": rule["next"],
        "settings": rule.get("settings"), "source": rule["source"],
    }  # fmt: skip


def _uncounted(traits: pd.DataFrame, floor: float) -> Iterator[dict[str, Any]]:
    """That verdicts which need counters are not given, where some were collected but too few."""
    total = traits["total_ns"].sum()
    share = traits["counted_ns"].sum() / total if total else 1.0
    if 0 < share < floor:
        yield {
            "level": "cell", "verdict": UNDECIDED, "metric": "share of GPU time with counters", "value": share,
            "threshold": floor, "evidence": "roofline.csv: counted_share", "gain": None,
            "next_step": f"counters cover {share:.0%} of GPU time: raise ncu.budget or collect ncu.set roofline of all "
            "configurations",
        }  # fmt: skip


def _nothing(step: pd.Series, counted: bool) -> dict[str, Any]:
    more = "" if counted else ": collect ncu.set roofline to tell what bounds its kernels"
    return {"level": "cell", "verdict": NOTHING, "metric": "share of the step: busy", "value": step["busy_share"],
            "evidence": "steps.csv: busy_share", "gain": 1.0,
            "next_step": f"the GPU is busy {step['busy_share']:.0%} of the step{more}"}  # fmt: skip


def _of_ncu(details: pd.DataFrame | None) -> list[dict[str, Any]]:
    """What ncu's own rules advise, the largest speed-up of a kernel first; details: ncu's details page."""
    if details is None or "Estimated Speedup" not in details:
        return []
    said = details[details["Rule Type"].eq("OPT") & pd.to_numeric(details["Estimated Speedup"], errors="coerce").gt(0)]
    said = said.assign(
        function=said["Kernel Name"].map(function_name), percent=pd.to_numeric(said["Estimated Speedup"])
    ).sort_values("percent", ascending=False, kind="stable")
    return [
        {
            "level": "kernel", "class": classify(row["Kernel Name"]), "function": row["function"],
            "verdict": f"ncu: {row['Rule Name']}", "metric": f"estimated speed-up, {row['Estimated Speedup Type']}, %",
            "value": row["percent"], "evidence": f"ncu-details.csv: launch {row['ID']}",
            "next_step": row["Rule Description"], "by": NCU, "source": f"ncu, section {row['Section Name']}",
        }
        for _, row in said.drop_duplicates(["function", "Rule Name"]).head(ADVICE).iterrows()
    ]  # fmt: skip


def _of(frame: pd.DataFrame | None, cell: tuple[str, str]) -> Any:
    if frame is None:
        return None
    return frame[(frame["model"] == cell[0]) & (frame["phase"] == cell[1])]
