"""Supplies the tracks of GPU metrics and of GPU memory below the typical step."""

import sqlite3

import pandas as pd

from profzoo.tools.nsys import gpu_memory, gpu_metrics
from profzoo.tools.nsys.gpu_metric_names import QUANTITIES
from profzoo.tools.nsys.tracks import TABLE, Supplied, TypicalStep, make_spans

# Without any of these tables, the traced program did not use a GPU, and nothing can be collected of one.
OF_GPU = {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_MEMCPY"}
# Links that a machine may lack. Their metrics are then 0, and their tracks are left out.
LINKS = ("nvlink_rx", "nvlink_tx")
# Kinds of memory that never have more have no track: code of modules on the GPU, or a flag in pinned memory.
LEAST_BYTES = 1_000_000


def supply_gpu_metrics(database: sqlite3.Connection, tables: set[str], step: TypicalStep) -> Supplied:
    """Return a track for each sampled quantity with a title and GPU of the step's process, in % of what is possible."""
    found = gpu_metrics.read_samples(database, tables, step.begin, step.end)
    if isinstance(found, str):
        return found if OF_GPU & tables else TABLE.empty()
    samples = gpu_metrics.samples_of_process(found, database, tables, step.process)
    several = samples["gpu"].nunique() > 1
    frames = []
    for quantity in filter(lambda one: one.title, QUANTITIES):
        for gpu, mine in samples[samples["quantity"] == quantity.name].groupby("gpu"):
            if quantity.name in LINKS and not mine["value"].any():
                continue
            times = mine["start"] - step.begin, mine["end"] - step.begin, mine["value"]
            title = _name_gpu(quantity.title, gpu) if several else quantity.title
            frames.append(make_spans(title, list(zip(*times, strict=True)), quantity.unit))
    return pd.concat(frames, ignore_index=True) if frames else TABLE.empty()


def _name_gpu(title: str, gpu: int) -> str:
    """Return the title of a track with the number of its GPU.

    >>> _name_gpu("SMs active", 1), _name_gpu("NVLink to GPU", 1)
    ('SMs active of GPU 1', 'NVLink to GPU 1')
    """
    return f"{title} {gpu}" if title.endswith("GPU") else f"{title} of GPU {gpu}"


def supply_gpu_memory(database: sqlite3.Connection, tables: set[str], step: TypicalStep) -> Supplied:
    """Return a track for each kind of memory of which the step's process took LEAST_BYTES, in bytes in use."""
    found = gpu_memory.read_memory(database, tables)
    if isinstance(found, str):
        return found if OF_GPU & tables else TABLE.empty()
    frames = []
    mine = found[(found["process"] == step.process) & (found["start"] < step.end)]
    for (gpu, kind), events in mine.groupby(["gpu", "kind"], sort=False):
        if events["peak_bytes"].max() < LEAST_BYTES:
            continue
        starts = events["start"] - step.begin
        ends = starts.shift(-1, fill_value=step.end - step.begin)
        several = found.loc[(found["process"] == step.process) & (found["kind"] == kind), "gpu"].nunique() > 1
        title = f"memory: {kind}"
        title = _name_gpu(title, gpu) if several else title
        spans = zip(starts, ends, events["in_use_bytes"].astype("float64"), strict=True)
        frames.append(make_spans(title, list(spans), "bytes"))
    return pd.concat(frames, ignore_index=True) if frames else TABLE.empty()
