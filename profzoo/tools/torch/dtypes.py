"""Adds up the time of operators by the types of their inputs, and names the casts from one type to another."""

import re

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tools.torch import dictionary, owners
from profzoo.tools.torch.host_calls import count_steps, find_steps
from profzoo.tools.torch.nesting import MARK, Nesting, classify_operators, exclusive_ns, nest_operators
from profzoo.tools.torch.trace import Trace

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
    columns=dict.fromkeys(KEY, column_types.TEXT)
    | dict.fromkeys(SUMS, column_types.COUNT)
    | dict.fromkeys(["launches", "device_ns"], column_types.or_missing(column_types.COUNT))
    | {"share": column_types.or_missing(column_types.AMOUNT)},
    key=KEY,
    about=dictionary.DTYPES,
)


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
