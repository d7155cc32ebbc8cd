"""Lists the launches of an nsys export step by step, in the order in which the CPU made them."""

from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.range_names import LAUNCHING
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys.launches import CONFIGURATION
from profzoo.tools.nsys.trace import open_export, read_ranges, read_window_steps

COLUMNS = ["process", "step", "start_ns", "ns", "kernel", "mangled", "function", "range", "stream", *CONFIGURATION]


def read_step_launches(path: str | Path, whole_run: bool = False, with_calls: bool = False) -> pd.DataFrame:
    """Return one row per kernel launch in the steps of `read_window_steps`, by process and then by time.

    Columns: `step`, from 0 in each process; `start_ns` and `ns` on the GPU; names of the kernel; the `range` that was
    open when the kernel was launched; `stream`; and the launch configuration. A CUDA graph launches its kernels at one
    moment; these are in the order in which they began. Graphs that were traced as a whole are left out.

    with_calls: whether to add the `correlation` of the launching call, which is unique within a process.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        launches = nsys_launches.read_launches(database, tables, placed=True)
        launches = launches[launches["graph"] < 0]
        steps = read_window_steps(database, tables, whole_run).sort_values(["process", "start"], ignore_index=True)
        places = nsys_launches.step_positions(launches, steps)
        codes = nsys_launches.find_ranges(launches, read_ranges(database, tables, LAUNCHING))
        kernels = nsys_launches.kernel_names(database, tables)
    names = launches.reset_index(drop=True).rename(columns={"start": "start_ns"})
    table = names.assign(
        **nsys_launches.unpack_configurations(names), place=places, made=nsys_launches.launch_times(names)
    )
    table["range"] = np.array(["", *LAUNCHING])[codes]
    order = ["process", "made", "start_ns", "stream", *nsys_launches.PACKS]
    table = table[table["place"] >= 0].sort_values(order, ignore_index=True)
    table["step"] = table["place"].map(steps.groupby("process").cumcount()).astype("int64")
    of_kernel = pd.DataFrame.from_dict(kernels, orient="index", columns=["mangled", "kernel", "function"], dtype="str")
    return table.drop(columns="mangled").join(of_kernel, on=table["mangled"].rename("number"))[
        [*COLUMNS, *(["correlation"] if with_calls else [])]
    ]
