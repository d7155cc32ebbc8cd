"""Exports torch.profiler's operators and launches to CSV files: by range, by owner, and by type of the inputs."""

import datetime
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, CPU, GPU, TEXT, Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tools.torch import losses, owners, trace, user_ranges
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch.cycles import TRACE
from profzoo.tools.torch.nesting import MARK, Nesting, classify_operators, exclusive_ns, nest_operators
from profzoo.tools.torch.trace import Trace, count_steps, find_steps

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Adds up the time of operators by the types of their inputs, and names the casts from one type to another.

# torch's names of types, by those that torch.profiler writes; without the namespace of other C++ types.
DTYPES = {
    "double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "long int": "int64", "long": "int64",
    "int": "int32", "short int": "int16", "short": "int16", "signed char": "int8", "unsigned char": "uint8",
    "bool": "bool",
}  # fmt: skip
NAMESPACE = "c10::"
# A cast writes a tensor of one type from a tensor of another one.
COPY, INTO = "aten::copy_", " -> "
KEY = ["operator", "caller", "dtypes", "cast"]
SUMS = ["calls", "self_cpu_ns", "launches", "device_ns"]
TABLE = Table(
    columns={
        "operator": Column(TEXT, "Operator; empty for launches whose operator is unknown.", tool="torch"),
        "caller": Column(TEXT, "Outermost operator around it within the module or autograd node.", tool="torch"),
        "dtypes": Column(TEXT, "Types of its tensors, each once, in the order of the inputs.", tool="torch"),
        "cast": Column(
            TEXT, "Type that a copy reads, and the other type that it writes; empty for what is not a cast.",
            tool="torch"),
        "calls": Column(COUNT, "Calls of the operator in all traced steps.", "count", "torch"),
        "self_cpu_ns": Column(
            COUNT, "Host time in all traced steps, without what the operator calls.", "ns", "torch", CPU),
        "launches": Column(
            COUNT.or_missing, "Launches by the operator itself in all traced steps; empty on a CPU.", "count", "torch"),
        "device_ns": Column(COUNT.or_missing, "GPU time of these launches; empty on a CPU.", "ns", "torch", GPU),
        "share": Column(
            AMOUNT.or_missing, "Share of the GPU time of all traced steps; on a CPU of the host time.",
            "fraction", "torch"),
    },
    key=KEY,
)  # fmt: skip


def tabulate_dtypes(trace: Trace, gpu: bool) -> pd.DataFrame:
    """Return one row per operator, outermost operator around it, and types of its inputs; see TABLE.

    Host times are those of operators within steps, and GPU times those of launches within steps, so that the rows add
    up to both. The row without an operator has the launches whose operator is unknown. In a trace without steps, all
    operators and launches count.

    gpu: whether the cell ran on a GPU; if not, the columns of launches are empty.
    """
    nesting = nest_operators(trace)
    host, device = _host_sums(trace, nesting), _device_sums(trace, nesting) if gpu else None
    found = host if device is None else host.join(device, how="outer")
    found = found.reindex(columns=SUMS).fillna(dict.fromkeys(SUMS if gpu else SUMS[:2], 0)).reset_index()
    time = found["device_ns" if gpu else "self_cpu_ns"]
    found["share"] = time / max(int(time.sum()), 1)
    found[SUMS] = found[SUMS].astype("Int64")
    by = ["device_ns", "self_cpu_ns"] if gpu else ["self_cpu_ns"]
    order = [*by, *KEY]
    ascending = [False] * len(by) + [True] * len(KEY)
    return found.sort_values(order, ascending=ascending, ignore_index=True)[list(TABLE.columns)]


def _host_sums(trace: Trace, nesting: Nesting) -> pd.DataFrame:
    own = exclusive_ns(trace, nesting.parent)
    chosen = classify_operators(trace) != MARK
    if count_steps(trace):
        chosen &= find_steps(trace.operators["start"], trace) >= 0
    places = np.flatnonzero(chosen)
    frame = _described(trace, nesting, places).assign(calls=1, self_cpu_ns=own[places])
    return frame.groupby(KEY)[["calls", "self_cpu_ns"]].sum()


def _device_sums(trace: Trace, nesting: Nesting) -> pd.DataFrame:
    launched = owners.tabulate_launches(trace)
    chosen = launched["step"].notna().to_numpy() if count_steps(trace) else np.ones(len(launched), dtype=bool)
    frame = _described(trace, nesting, owners.launching_operators(trace)[chosen])
    frame = frame.assign(launches=1, device_ns=launched["ns"].to_numpy()[chosen])
    return frame.groupby(KEY)[["launches", "device_ns"]].sum()


def _described(trace: Trace, nesting: Nesting, operators: np.ndarray) -> pd.DataFrame:
    """Return KEY of operators; operators: their indices, -1 for an unknown one."""
    names = np.array([*trace.texts, ""], dtype=object)
    codes = {name: np.append(trace.operators[name], -1)[operators] for name in ("name", "types")}
    top = np.append(nesting.top, -1)[operators]
    written = {int(code): name_dtypes(trace.texts[code]) for code in np.unique(codes["types"]) if code >= 0}
    types = [written.get(int(code), "") for code in codes["types"]]
    cast = {int(code): name_cast(trace.texts[code]) for code in written}
    is_copy = names[codes["name"]] == COPY
    casts = [cast.get(int(code), "") if copied else "" for code, copied in zip(codes["types"], is_copy, strict=True)]
    callers = names[np.append(trace.operators["name"], -1)[top]]
    return pd.DataFrame({"operator": names[codes["name"]], "caller": callers, "dtypes": types, "cast": casts})


def name_dtypes(given: str) -> str:
    """Return torch's names of the types of an operator's tensors, each once, from the types of all its inputs.

    >>> name_dtypes("c10::BFloat16, c10::BFloat16, Scalar"), name_dtypes("float, long int, , Scalar")
    ('bfloat16', 'float32, int64')
    """
    return ", ".join(dict.fromkeys(_names(given)))


def name_cast(given: str) -> str:
    """Return the cast that a copy makes, from the types of its inputs; empty if both tensors have one type.

    >>> name_cast("c10::Float8_e4m3fn, float, Scalar"), name_cast("float, float, Scalar")
    ('float32 -> float8_e4m3fn', '')
    """
    into, taken, *_ = [*_names(given), "", ""]
    return f"{taken}{INTO}{into}" if taken and taken != into else ""


def _names(given: str) -> list[str]:
    """Return torch's names of the types of tensors among the inputs, in their order; numbers and lists have none."""
    found = (one.strip() for one in given.split(","))
    return [DTYPES.get(one) or one.removeprefix(NAMESPACE).lower() for one in found if _is_tensor(one)]


def _is_tensor(kind: str) -> bool:
    return kind in DTYPES or bool(re.fullmatch(rf"{NAMESPACE}\w+", kind))


# Lays traces out as TensorBoard's profiler plugin reads them, as torch.profiler.tensorboard_trace_handler does.

# The plugin takes what is before the number as the worker, and the number, a time in ns, as the worker's cycle.
NAME = "{worker}.{ns}.pt.trace.json.gz"
TENSORBOARD_FACTS: fact.Needs = {"started": fact.TEXT, "cell": {"profiler": {}}}


def write_tensorboard(traced: str, sidecar: str, folders: Sequence[str], output: str) -> None:
    """Copy the traces of all cycles to a folder, in their order.

    folders: that of earlier cycles, if there were several. output: folder that TensorBoard is given as `--logdir`.

    Raises:
        DataError: the trace of a cycle is missing.
    """
    facts = read_facts(sidecar, TENSORBOARD_FACTS)
    earlier = facts["cell"]["profiler"].get("repeat", 1) - 1 if folders else 0
    traces = [*(Path(folders[0]) / TRACE.format(cycle) for cycle in range(earlier)), Path(traced)]
    if missing := [path for path in traces if not path.exists()]:
        raise DataError(f"there is no {missing[0]}: collect the trace again")
    home = Path(output)
    home.mkdir(parents=True)
    began = int(datetime.datetime.fromisoformat(facts["started"]).timestamp() * 1e9)
    worker = f"{Path(traced).parent.name}_{Path(traced).name.partition('.')[0]}"
    for cycle, path in enumerate(traces):
        shutil.copyfile(path, home / NAME.format(worker=worker, ns=began + cycle))


FACTS: fact.Needs = {
    "cell": {"profiler": {"memory": fact.FLAG}},
    "device_type": fact.TEXT,
    "traced_steps?": fact.COUNT,
    "left_out?": fact.TEXTS,
}
KERNEL = list(trace.DEVICE_KINDS).index("kernel")
# A session loses its first kernels, so with more steps the later ones are complete.
LONGER = "raise torch.window, so that later steps are whole"
NO_STEP = (
    "holds no step of the window, so no values per step are known, and launches have no range: the program opened no "
    "range while torch.profiler recorded (see the log of the profiling job)"
)


def main(
    operators: str, traced: str, sidecar: str, outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read the recorder's table and trace, write CSV: `csv`, `launches`, `modules`, `ranges` and `dtypes`.

    `modules` own the launches. `ranges` are those that the program opened itself; where there are any, `launches` has
    the one of each launch. `dtypes` has operators by the types of their inputs.

    Raises:
        DataError: there is no operator, or no kernel although the cell ran on a GPU; the profiler lost kernels of every
            step; or a launch has impossible times.
    """
    facts = read_facts(sidecar, FACTS)
    raw = reading.read(operators, torch_tables.OPERATORS)
    if raw.empty:
        raise DataError(f"{operators} holds no operator: torch.profiler recorded nothing in the window")
    profiler, gpu = facts["cell"]["profiler"], facts["device_type"] == "cuda"
    events = trace.read_trace(traced, say)
    if gpu and not (events.launches["kind"] == KERNEL).any():
        raise DataError(
            f"{traced} holds no kernel although the cell ran on a GPU: CUPTI could not trace it, "
            "most often because another profiler holds it; see the log of the profiling job"
        )
    if not trace.count_steps(events):
        say(f"{outputs['csv']}: the trace {NO_STEP}")
    whole, lacking = _whole(events, traced, facts) if gpu else (events, False)
    for line in facts.get("left_out", []):
        say(f"{outputs['csv']}: without {line}")
    table = torch_tables.tidy_operators(raw, whole, profiler, gpu, lacking)
    write_csv(table, outputs["csv"])
    launches = owners.tabulate_launches(whole) if gpu else owners.tabulate_operators(whole)
    found = user_ranges.find_user_ranges(whole)
    if found is not None:
        launches = user_ranges.add_user_ranges(launches, whole, found, gpu)
    write_csv(launches, outputs["launches"])
    write_csv(user_ranges.tabulate_user_ranges(found), outputs["ranges"])
    write_csv(owners.tabulate_modules(whole), outputs["modules"])
    write_csv(tabulate_dtypes(whole, gpu), outputs["dtypes"])


def _whole(events: trace.Trace, traced: str, facts: "Sidecar") -> tuple[trace.Trace, bool]:
    """Return the trace without steps that lack kernels, and whether there were any.

    Of a trace that was made elsewhere and has no complete step, all steps stay.

    Raises:
        DataError: no complete step is left, the sidecar does not mention the loss, or a launch has impossible times.
    """
    if why := losses.find_impossible(events):
        raise DataError(f"{traced}: {why}, {trace.WRONG}: {trace.AGAIN}")
    found = losses.find_losses(events)
    if not found.lacking and not found.outside:
        return events, False
    told = "; ".join(found.told())
    left = found.steps - len(found.lacking)
    if not left and "imported" in facts:
        # Nobody can record it again here, and its import says how much is missing.
        return events, False
    if not left or found.outside:
        raise DataError(f"{traced}: torch.profiler lost kernels, {told}: {LONGER}")
    if facts.get("traced_steps") != left:
        raise DataError(
            f"{traced}: torch.profiler lost kernels, {told}, but its sidecar does not say so: {trace.AGAIN}"
        )
    return losses.drop_steps(events, sorted(found.lacking)), True
