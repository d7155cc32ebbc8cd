"""Predict the gain of advice by a what-if simulation of the cell's traced steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.fusion import autocast
from profzoo.fusion.gains import AUTOCAST, CASTS, CASTS_NS, KEYS, MOVED, NARROW, fuse_chains
from profzoo.io.csv_tables import Row
from profzoo.range_names import FORWARD
from profzoo.tables.cell_tables import LEAST_LEFT
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.verdicts.advice_scores import ErrorBound
from profzoo.verdicts.rules.rule_types import KnownSettings
from profzoo.what_if import changes, graph_obstacles, host_time, predicted_gains, simulator
from profzoo.what_if.loading import Loading
from profzoo.what_if.predicted_gains import Operations
from profzoo.what_if.program import Program, read_flags
from profzoo.what_if.trace_events import COPY, SET

# Predict which part of each launch's time tf32 or bf16 would save, by measured roofs.
#
# Matrix products then run in other kernels, on tensor cores. What else autocast does follows from the operators that a
# trace of torch.profiler has (profzoo/fusion/autocast.py); without one, from the names of kernels.

# Classes of kernels that tensor cores compute; classes that autocast leaves in fp32 or does not reach.
PRODUCTS = ("gemm", "convolution", "recurrent", "attention")
UNTOUCHED = ("optimizer", "communication")
PASSES = (*FORWARD, "backward")
# Kernels that accompany matrix products: transforms (FFT, Winograd), and sums of partial results.
PIECES = r"fft2d_|winograd\w*(?:Data|Delta|Output|Filter)|splitKreduce|reduce_wgrad|init_device_workspace"
# Products of complex numbers belong to FFTs; no other kernel reads their bytes.
COMPLEX = "cf32cf32"
# In fp32, cuDNN normalises a batch in one kernel. In bf16, PyTorch does it in three kernels, and no faster.
BATCH_NORM, FORWARD_NORM, NORM_MORE = "bn_(?:fw|bw)_", "bn_fw_", 2.0
# Least time of any launch in ns: the shortest tenth of the zoo's elementwise kernels on an H200.
SHORTEST_NS = 2_000.0
# All below is fitted to kernels and launches of training steps of bert, deeplab, inceptionv3, mobilenetv2, resnetv2_50,
# unet and vgg19 on an H200, by nsys (docs/how/simulation.md). A kernel that autocast or another layout adds:
ADDED_NS = 3_000.0
# Time of a tensor-core kernel besides its operations, and the share of the peak rate that these reach.
BEGINNING_NS = {"tf32": 15_000.0, "bf16": 8_000.0}
REACHED_OPERATIONS = 0.8
# The share that convolutions reach whose operations are estimated from time, by trials of unet, vgg16 and vgg19 (H200).
# Depthwise ones run in kernels of torch that no tensor core computes.
REACHED_UNCOUNTED, DEPTHWISE = {"tf32": 0.42, "bf16": 0.21}, "(?i)depthwise"
# Time that the change of layout to channels last and back adds to a convolution.
LAYOUT = {"tf32": 0.25, "bf16": 0.5}
# Where operators are not known: an operator casts its weights, and in training their gradients; in inference it takes
# the CPU as much longer, by trials of deeplab, inceptionv3 and srcnn. Of a captured step that is two for three
# products. Names of kernels tell some of the operators that stay in fp32.
GUESSED_CASTS, GUESSED_CAPTURED = 2.0, 2 / 3
WIDE_KERNELS = (
    r"(?i)soft_?max|layer_?norm|group_?norm|nll_loss|upsample|pow_tensor"
    rf"|(?<![a-z])(?:{autocast.join_names(autocast.WIDE)})_kernel"
)
# In fp32, attention multiplies on tensor cores already, three times in tf32 for each product (CUTLASS's
# OpMultiplyAddFastF32, in torch's memory-efficient attention), whether tf32 is allowed or not.
FAST_FP32 = 3.0
# Without counters: what its nearest roof takes of a launch's time beyond the shortest; and which classes but products
# have a roof at all, that of memory. Of bert, mobilenetv2 and unet with every launch counted on an H100, DRAM or L2
# takes 0.82 of it in these classes, and instructions of any kind, at the rate of multiply-adds, 0.71 in products.
UNCOUNTED = 0.7
COPY_CLASSES = ("elementwise", "copy", "softmax", "pooling")
# Without measured peaks: rates of the data sheets of A100 and H100, relative to fp32 (8.0 and 7.4; 16.0 and 14.8).
RATES = {"fp32": 1.0, "tf32": 8.0, "bf16": 16.0}
# Columns with the ns that a launch takes at least by each roof; of the table of the roofline without the first word.
ROOF = "roof_"
ROOFS = tuple(f"{ROOF}{name}_ns" for name in ("dram", "l2", "simt", "tensor"))
OPERATIONS = ["roof_simt_ns", "roof_tensor_ns"]
TARGET_PRECISIONS = ("tf32", "bf16")


def saved_share(rows: pd.DataFrame, peaks: Mapping[str, float], to: str, now: str, nchw: bool = True) -> pd.Series:
    """Return the share of each row's time that reduced precision saves.

    The new time of a matrix product follows from its operations and bytes, at the rates that tensor-core kernels reach.
    Any other launch gets shorter in proportion to its nearest roof; its distance from that roof stays.

    Args:
        rows: one row per launch, with `class`, `mean_ns`, `bound`, `efficiency` and, if known, `kernel`, `range` and
            ROOFS. For launches without counters, UNCOUNTED is used.
        peaks: measured rates by name, in flop/s; unknown ones follow from RATES.
        to: precision to predict, a key of TO.
        now: precision of the cell.
        nchw: whether its tensors have channels first.

    A product takes 1 ms, of which fp32 at its peak needs 0.6; tensor cores are ten times as fast:

    >>> rows = pd.DataFrame({"class": ["gemm"], "mean_ns": 1e6, "bound": "simt", "efficiency": 0.6})
    >>> saved_share(rows, {"fp32": 50, "tf32": 500}, "tf32", "fp32").round(2).tolist()
    [0.91]
    """
    before, rates = _roofs(rows, now), peaks if {"fp32", to, *({now} & {*TARGET_PRECISIONS})} <= set(peaks) else RATES
    left, attends = _bytes_left(rows), rows["class"].eq("attention")
    products = _are_products(rows) & left.lt(1) & (_in_passes(rows) if to == "tf32" else True)
    products &= (to == "bf16") | ~attends
    guessed = rows["class"].eq("convolution") & rows.reindex(columns=["efficiency", *ROOFS]).isna().all(axis=1)
    reached = guessed.map({True: REACHED_UNCOUNTED[to], False: REACHED_OPERATIONS})
    after = {name: before[name] for name in ROOFS}
    after["roof_simt_ns"] = after["roof_simt_ns"].mask(
        products, after["roof_simt_ns"] * min(rates["fp32"] / rates[to], 1.0)
    )
    if to == "bf16":
        after |= {name: after[name] * left for name in ("roof_dram_ns", "roof_l2_ns")}
        if now == "tf32":
            faster_ones = after["roof_tensor_ns"] * min(rates["tf32"] / rates["bf16"], 1.0)
            after["roof_tensor_ns"] = after["roof_tensor_ns"].mask(products, faster_ones)
        fast = min(rates.get("tf32", RATES["tf32"] * rates["fp32"]) / FAST_FP32 / rates["bf16"], 1.0)
        after |= {name: after[name].mask(products & attends, before[name] * fast) for name in OPERATIONS}
    after = pd.DataFrame(after)
    sooner = (before.max(axis=1) - after.max(axis=1)).clip(lower=0)
    faster = products & (before[OPERATIONS].max(axis=1) > after[OPERATIONS].max(axis=1))
    moved = after["roof_dram_ns"].mask(_name_matches(rows, COMPLEX), 0.0)
    takes = BEGINNING_NS[to] + np.maximum(after[OPERATIONS].max(axis=1) / reached, moved)
    takes = takes.mask(_relayout_counts(rows, now, nchw), takes * (1 + LAYOUT[to]))
    sooner = sooner.where(~faster, (rows["mean_ns"] - takes).clip(lower=0)).fillna(0.0)
    # Of launches that are alike, only some may be of operators that autocast casts.
    sooner = sooner.mask(faster, sooner * (2 * (1 - left)).clip(upper=1))
    most = (rows["mean_ns"] - SHORTEST_NS).clip(lower=0)
    gone = products & _name_matches(rows, PIECES) & (now == "fp32")
    return (sooner.clip(upper=most) / rows["mean_ns"]).fillna(0.0).mask(gone, 1.0)


def find_precision(ran_with: KnownSettings) -> tuple[str, bool]:
    """Return the precision of a cell, and whether its tensors have channels first.

    >>> find_precision({"precision": "bf16", "channels_last": True}), find_precision({})
    (('bf16', False), ('fp32', True))
    """
    return str(ran_with.get("precision", "fp32")), not ran_with.get("channels_last", False)


def saved_column(to: str) -> str:
    """Name of the column with the share of a launch's time that a reduced precision saves.

    >>> saved_column("bf16")
    'saved_share_bf16'
    """
    return f"saved_share_{to}"


def add_saved_shares(
    rows: pd.DataFrame, cast: pd.DataFrame | None, peaks: Mapping[str, float], now: str, nchw: bool
) -> pd.DataFrame:
    """Return rows of launches with what saved_share and add_operators tell of them; arguments as of these."""
    told = add_operators(rows, cast)
    return told.assign(**{saved_column(to): saved_share(told, peaks, to, now, nchw) for to in TARGET_PRECISIONS})


def added_launches(rows: pd.DataFrame, to: str, now: str, nchw: bool = True) -> pd.DataFrame:
    """Return the launches that are added per launch: number by operators of their own, their ns, number within its own.

    >>> rows = pd.DataFrame({"class": ["gemm", "convolution", "gemm"], "range": ["forward", "forward", "backward"]})
    >>> added_launches(rows, "bf16", "fp32").to_numpy().tolist()
    [[2.0, 3000.0, 0.0], [2.0, 3000.0, 1.0], [0.0, 3000.0, 0.0]]
    """
    found = pd.DataFrame({"operators": 0.0, "ns": ADDED_NS, "within": 0.0}, rows.index)
    weighted = _are_products(rows) & rows["class"].ne("attention") & ~_name_matches(rows, PIECES)
    if to == "bf16" and now != to:
        parts = rows["range"] if "range" in rows else pd.Series("graph", rows.index)
        guessed = (
            parts.map({**dict.fromkeys(FORWARD, GUESSED_CASTS), "graph": GUESSED_CAPTURED})
            .fillna(0.0)
            .where(weighted, 0.0)
        )
        known = rows.reindex(columns=AUTOCAST).astype("float64")
        found["operators"] = known[CASTS].fillna(guessed)
        found["ns"] = (known[CASTS_NS] / known[CASTS].where(known[CASTS] > 0)).fillna(ADDED_NS)
        found["within"] = found["within"].mask(_name_matches(rows, FORWARD_NORM), NORM_MORE)
    return found.assign(within=found["within"].mask(weighted & _relayout_counts(rows, now, nchw), 1.0))


def add_operators(rows: pd.DataFrame, cast: pd.DataFrame | None) -> pd.DataFrame:
    """Return rows of launches with AUTOCAST per launch, missing where no operator is known.

    cast: rows of fusion-kernels.csv; launches in the same range and of the same configuration share their mean.
    """
    if cast is None or not {*KEYS} <= {*rows.columns}:
        return rows
    kinds = dict.fromkeys(KEYS, object)
    mean = cast.astype(kinds).groupby(KEYS, sort=False, dropna=False)[AUTOCAST].mean()
    return rows.assign(**mean.reindex(pd.MultiIndex.from_frame(rows[KEYS].astype(kinds))).set_index(rows.index))


def _bytes_left(rows: pd.DataFrame) -> pd.Series:
    """Return the share of its bytes that each launch still moves under autocast to bf16: 1 for what stays in fp32."""
    stays = rows["class"].isin(UNTOUCHED) | _name_matches(rows, WIDE_KERNELS) | ~_in_passes(rows)
    known = rows.reindex(columns=AUTOCAST).astype("float64")
    left = (known[NARROW] / known[MOVED].where(known[MOVED] > 0)).fillna(stays.map({True: 1.0, False: 0.5}))
    return left.mask(_name_matches(rows, BATCH_NORM), 1.0)


def _are_products(rows: pd.DataFrame) -> pd.Series:
    """Return whether tensor cores can compute each row."""
    return rows["class"].isin(PRODUCTS) & ~_name_matches(rows, DEPTHWISE)


def _in_passes(rows: pd.DataFrame) -> pd.Series:
    """Return whether each row belongs to the forward or backward pass, or to a graph of both; true if unknown."""
    return rows["range"].isin((*PASSES, "graph")) if "range" in rows else pd.Series(True, rows.index)


def _relayout_counts(rows: pd.DataFrame, now: str, nchw: bool) -> pd.Series:
    """Return 1 for rows whose operands need another layout for tensor cores and do not have it yet, else 0."""
    return rows["class"].eq("convolution") & nchw & (now == "fp32")


def _name_matches(rows: pd.DataFrame, pattern: str) -> pd.Series:
    """Return whether the name of each row's kernel matches a regular expression; false if names are unknown."""
    names = next((rows[name] for name in ("kernel", "function") if name in rows), pd.Series("", rows.index))
    return names.fillna("").str.contains(pattern)


def _roofs(rows: pd.DataFrame, now: str) -> pd.DataFrame:
    """Return the least ns of each launch by each roof, one column per roof.

    If only bound and efficiency are known, they follow from these; without counters, from the class of the kernel.
    """
    known = rows.reindex(columns=list(ROOFS)).astype("float64")
    lacking, products = known.isna().all(axis=1), _are_products(rows)
    uncounted = lacking & rows["efficiency"].isna()
    # Bytes that are known take no less than at the bandwidth of memory.
    moved = rows.reindex(columns=[MOVED])[MOVED].astype("float64")
    bound = rows["bound"].mask(uncounted, "").mask(uncounted & products, "simt" if now == "fp32" else "tensor")
    bound = bound.mask(uncounted & ~products & (rows["class"].isin(COPY_CLASSES) | moved.gt(0)), "dram")
    beyond = (rows["mean_ns"] - SHORTEST_NS).clip(lower=0)
    moved = np.minimum(moved, beyond).where(uncounted)
    guessed = (UNCOUNTED * beyond).mask(moved.gt(0) & ~products, moved)
    takes = (rows["efficiency"].astype("float64") * rows["mean_ns"]).mask(uncounted, guessed)
    # Few rows are judged at a time, so that columns as a whole are set in a tenth of the time of some of their rows.
    known = known.assign(**{
        roof: known[roof].mask(lacking & bound.eq(roof.removeprefix(ROOF).removesuffix("_ns")), takes) for roof in ROOFS
    })  # fmt: skip
    return known.assign(roof_dram_ns=known["roof_dram_ns"].fillna(moved)).fillna(0.0)


GRAPH, INPUT_READY = "graph", "input_ready"
# Without the waits of the step itself, and without these and the calls that allocate and free memory.
WITHOUT_WAITS, WITHOUT_PAUSES = "step_waits_removed", "step_pauses_removed"
# Without pauses of the host between launches that neither launches nor the GPU cause.
WITHOUT_HOST_PAUSES = "host_pauses_removed"
# With gradients sent once per update, where they are accumulated.
SENT_ONCE = "gradients_sent_once"
# Without what a library or compiler tries within steps.
WITHOUT_TUNING = "tuning_removed"
# The least share of the launches' time that must be found in the trace for a prediction.
LEAST_FOUND_SHARE = 0.8


@dataclass(frozen=True)
class RequestedChange:
    """A change to simulate.

    Attributes:
        change: its name, a key of STEP_CHANGES or one of LAUNCH_CHANGES.
        rows: launches that it is about, a row per launch configuration.
        saved: share of each row's time that it saves, nan where unknown; for reduced precision, 1 for launches that
            disappear.
        workers: processes that load batches meanwhile; 0 where these are there without any work.
        pinned: whether a thread receives the batches of workers and pins their memory.
        added: launches that it adds per launch, from added_launches.
        fused: GPU time in ns per step of the fused kernels, by chain; then `rows` are kernels of chains.
    """

    change: str
    rows: pd.DataFrame | None = None
    saved: pd.Series | None = None
    added: pd.DataFrame | None = None
    fused: pd.Series | None = None
    workers: int = 0
    pinned: bool = False


def _remove_copies(program: Program, crossing: bool) -> Program:
    gpu = program.gpu
    mine = gpu["crossing"].to_numpy(dtype=bool)
    chosen = mine if crossing else gpu["kind"].isin([COPY, SET]).to_numpy() & ~mine
    return changes.fuse(program, chosen)


def _remove_waiting(program: Program, step: Row) -> Program:
    """Shorten communication by the time in which it waits for other processes."""
    share = program.waiting
    if share is None:
        share = min(step["waiting_ns"] / max(step["communication_ns"], 1.0), 1.0)
    return predicted_gains.keep_waits(replace(program, waiting=share), 0.0)


def _remove_step_waits(program: Program) -> Program:
    return changes.remove_blocking_calls(program, graph_obstacles.find_step_waits(program))


def _have_workers(program: Program, asked: RequestedChange, loading: Loading) -> Program:
    """Have batches loaded by workers: the process only receives them, unless a thread does and pins them."""
    ready = changes.prefetch_input(program, 0.0 if asked.pinned else loading.handover_ns)
    return host_time.pin_copies(ready, of_input=True) if asked.pinned else ready


# Changes of rules about the step, by name: functions of a program and the cell's row of the table of steps.
STEP_CHANGES: Mapping[str, Callable[[Program, Row], Program]] = {
    INPUT_READY: lambda program, _: changes.prefetch_input(program),
    "waits_removed": lambda program, _: changes.remove_waits(program),
    WITHOUT_WAITS: lambda program, _: _remove_step_waits(program),
    WITHOUT_PAUSES: lambda program, _: _remove_step_waits(changes.remove_allocations(program)),
    GRAPH: lambda program, _: changes.capture_as_graph(program),
    "half_the_operators": lambda program, _: predicted_gains.PANEL["half_the_operators"](program),
    "transfers_removed": lambda program, _: _remove_copies(program, crossing=True),
    "copies_removed": lambda program, _: _remove_copies(program, crossing=False),
    "communication_overlapped": lambda program, _: changes.overlap_communication(program),
    "waiting_removed": _remove_waiting,
    "allocations_removed": lambda program, _: changes.remove_allocations(program),
    "lock_waits_removed": lambda program, _: host_time.remove_lock_waits(program),
    "host_work_removed": lambda program, _: host_time.remove_host_work(program),
    "loading_removed": lambda program, _: host_time.remove_loading(program),
    "copies_pinned": lambda program, _: host_time.pin_copies(program),
    # Of steps whose only waits are those for logging.
    "logging_removed": lambda program, _: _remove_step_waits(program),
    SENT_ONCE: lambda program, _: predicted_gains.send_once(program),
    WITHOUT_TUNING: lambda program, _: changes.remove_tuning(program),
    # No rule names it: what is left out of the idle time of launches.
    WITHOUT_HOST_PAUSES: lambda program, _: host_time.remove_pauses(program),
}
# Changes of rules about launches: make them faster, remove them with their calls, or reduce precision.
FASTER, FUSED = "faster", "fused"
# The change of rules about chains: their operators become fused kernels.
CHAINS = "fused_chains"
LAUNCH_CHANGES = (FASTER, FUSED, *TARGET_PRECISIONS)


class CellSimulation:
    """What-if simulation of a cell's traced steps."""

    def __init__(self, program: Program, unrepeated: float = 0.0, loading: Loading | None = None) -> None:
        """Simulate the unchanged steps.

        Args:
            program: the traced steps.
            unrepeated: relative difference between processes to assume if the program has only one process.
            loading: how the steps get their batches.
        """
        self.program, self.operations = program, Operations(program)
        self.apart = program.apart or unrepeated
        self.before = simulator.step_times(program, simulator.simulate(program))
        self.differ = graph_obstacles.steps_differ(program)
        step_ns = float(self.before.mean())
        self.loading = (loading or Loading()).of_step(step_ns, changes.loading_ns(program) / max(step_ns, 1.0))
        self.tried = read_flags(program.gpu, "tried")

    def fit_loading(self) -> Loading | None:
        """Return how batches are loaded, and the rest of a step whose batches workers load and a thread pins.

        The result is None if loading takes less than handing over a batch.
        """
        if self.loading.batch_ns < self.loading.handover_ns:
            return None
        rest = _have_workers(self.program, RequestedChange(INPUT_READY, pinned=True), self.loading)
        return replace(self.loading, rest_ns=float(simulator.step_times(rest, simulator.simulate(rest)).mean()))

    def tried_share(self) -> float:
        """Return the share of the counted steps, 0 to 1, in which the GPU runs what a tuner tries."""
        steps = self.program.host["step"].to_numpy()[self.program.gpu["host"]]
        counted = self.tried & (steps >= min(1, self.program.steps - 1))
        return min(float(self.program.gpu["ns"].to_numpy(dtype=float)[counted].sum() / self.before.sum()), 1.0)

    def tried_parts(self, rows: pd.DataFrame) -> pd.Series:
        """Return the part of the GPU time of launches, 0 to 1, that a tuner's launches of that configuration take.

        rows: of a table of kernels.
        """
        if not self.tried.any() or not set(rows.columns) >= {*CONFIGURATION}:
            return pd.Series(0.0, rows.index)
        ns = self.program.gpu["ns"].astype(float)
        own = self.operations.keys.astype({"mangled": object}).assign(ns=ns, tried=ns.where(self.tried, 0.0))
        sums = own[self.operations.kernels].groupby(CONFIGURATION)[["ns", "tried"]].sum()
        parts = (sums["tried"] / sums["ns"]).reindex(
            pd.MultiIndex.from_frame(rows[CONFIGURATION].astype({"mangled": object}))
        )
        return parts.fillna(0.0).set_axis(rows.index)

    def gain(
        self, asked: RequestedChange, step: Row, error: ErrorBound | float, graph: bool = False
    ) -> predicted_gains.Gain | None:
        """Return the gain of a change; None if the trace lacks the launches that it is about.

        Args:
            asked: the change.
            step: the cell's row of the table of steps.
            error: relative error that nine of ten such predictions stayed below in trials.
            graph: whether to simulate the changed step as one CUDA graph.
        """
        return self.gain_together([asked, RequestedChange(GRAPH)] if graph else [asked], step, error)

    def gain_together(
        self, asked: Sequence[RequestedChange], step: Row, error: ErrorBound | float
    ) -> predicted_gains.Gain | None:
        """Return the gain of several changes to the same steps; None if the trace lacks launches that one is about.

        The changes are made one after the other, and the steps are simulated once. A graph is captured last, because
        it holds the launches as the other changes leave them.

        A step takes at least as long as the workers of a change, or the cores, need for its batch. Where no time would
        be left, nothing is known.

        The interval has the spread of the traced steps, the error, and how far processes are apart, unless trials
        measured the error on cells with several processes and this cell has several too.

        Args:
            asked, step, error: as for gain.
        """
        after = self.program
        for one in sorted(asked, key=lambda one: one.change == GRAPH):
            changed = self._changed(after, one, step)
            if changed is None:
                return None
            after = changed
        bound = error if isinstance(error, ErrorBound) else ErrorBound(error, error)
        apart = 0.0 if bound.repeated and self.program.apart else self.apart
        down, up = (float(np.expm1(np.hypot(np.log1p(one), apart))) for one in (bound.error, bound.above))
        times, workers = simulator.step_times(after, simulator.simulate(after)), max(one.workers for one in asked)
        least = replace(self.loading, rest_ns=float(times.mean())).least_step_ns(workers) if workers else 0.0
        times = np.maximum(times, least)
        if times.sum() < LEAST_LEFT * self.before.sum():
            return None
        found = predicted_gains.gain_of_steps(self.before, times, down, differ=self.differ, above=up)
        # A single step has no spread.
        low, high = error_interval(found.gain, down, up) if np.isnan(found.low) else (found.low, found.high)
        if least:
            high = max(min(high, self.before.mean() / least), found.gain)
        gain, low, high = (one / bound.hopeful for one in (found.gain, low, high))
        return predicted_gains.Gain(found.step_ns, found.step_ns / gain, gain, low, high, bound.whole)

    def _changed(self, program: Program, asked: RequestedChange, step: Row) -> Program | None:
        """Return a program with one more change; its operations are those of the trace, in the same order."""
        if asked.workers:
            return _have_workers(program, asked, self.loading)
        if asked.change in STEP_CHANGES:
            return STEP_CHANGES[asked.change](program, step)
        if asked.fused is not None and asked.rows is not None:
            # Chains are known of the traced steps alone, and not of changed ones.
            return fuse_chains(self.operations, asked.rows, asked.fused) if program is self.program else None
        assert asked.rows is not None and asked.saved is not None
        known = asked.rows["launches"].gt(0) & asked.rows["total_ns"].notna()
        rows, saved = asked.rows[known], asked.saved[known].to_numpy(dtype=float)
        if not len(rows) or np.isnan(saved).any() or not set(rows.columns) >= set(self.operations.keys.columns[1:]):
            return None
        places = self.operations.of(rows)
        chosen = places >= 0
        ns = self.program.gpu["ns"].to_numpy(dtype=float)
        if ns[chosen].sum() < LEAST_FOUND_SHARE * rows["total_ns"].sum() * self.program.steps:
            return None
        saved = np.where(chosen, saved[places], 0.0)
        if asked.change == FUSED:
            # A launch that is fused disappears; the unsaved rest of its time goes to the launch before it.
            return changes.fuse(program, chosen & (saved > 0), float(saved[chosen].max(initial=0.0)))
        after = changes.speed_up_kernels(program, chosen, 1 / np.maximum(1 - saved, 1e-9))
        if asked.added is None:
            return after
        more = np.where(chosen[:, None], asked.added[known].to_numpy(dtype=float)[places], 0.0)
        after = changes.add_launches(after, more[:, 0], more[:, 1])
        after = changes.add_launches(after, more[:, 2], ADDED_NS, within=True)
        return changes.fuse(after, chosen & (saved >= 1))


def error_interval(gain: float, error: float, above: float | None = None) -> tuple[float, float]:
    """Return the interval of a gain with a relative error; above: that of the upper end, if it is another one.

    >>> tuple(round(end, 2) for end in error_interval(2.0, 0.25))
    (1.6, 2.5)
    """
    return gain / (1 + error), gain * (1 + (error if above is None else above))
