"""Parts of the time of a token: traces with known sums, read as real ones are, and ranges that a real step opens."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.cell import settings
from profzoo.config.configuration import normalise_config
from profzoo.figures import token_parts
from profzoo.figures.tokens import draw
from profzoo.harness.observers import recorders
from profzoo.io.csv_tables import read
from profzoo.io.scripts import write_csv
from profzoo.range_names import DECODE, PREFILL
from profzoo.report.cell_section import describe_tokens
from profzoo.tables import tokens
from profzoo.tools.torch import activity, owners
from profzoo.tools.torch.trace import read_trace
from tests import zoo
from tests.conftest import DATA
from tests.gpu.programs import decoder
from tests.unit.test_recorders import CPU, run
from tests.unit.test_torch_trace import Event, called, part, ran, span

# Tokens after the first; us between begins of steps, and between a call and the begin on a GPU that waits for it.
FURTHER, LONG_US, LATENCY = 3, 50_000.0, 2.5


class Launch(NamedTuple):
    """A launch of a token: what it computes, how long it runs, and how long the GPU is idle before it at least, in us.

    after: what the host does with a result that it has waited for, in us.
    """

    operator: str
    shapes: Sequence[object]
    module: str
    us: float
    idle: float = 0.5
    kernel: str = "kernel"
    category: str = "kernel"
    after: float = 0.0


# By shapes in fp32: 4 * (1000 + 2e6 + 2000) bytes, of which 8e6 are weights, and 4 * (2 * 64 + 2 * 500 * 64) bytes.
PRODUCT = Launch("aten::mm", [[1, 1000], [1000, 2000]], "blocks.0.up", 10)
ATTENTION = Launch("aten::_flash_attention_forward", [[1, 1, 4, 16], [1, 500, 4, 16], [1, 500, 4, 16]], "blocks.0", 3)
NORM = Launch("aten::native_layer_norm", [[1, 1, 1000], [], [1000], [1000], []], "blocks.0.norm", 2)
CHOICE = Launch("aten::argmax", [[1, 2000], [], []], "", 4)
PLAIN = (NORM, ATTENTION, PRODUCT, CHOICE)
# Of four heads, with keys and values that are there for two, in products of their own, and of eight experts.
REPEATED = Launch("aten::copy_", [[1, 2, 2, 500, 16], [1, 2, 2, 500, 16]], "blocks.0", 2)
SCORES = Launch("aten::bmm", [[4, 1, 16], [4, 16, 500]], "blocks.0", 3)
SOFTMAX = Launch("aten::_softmax", [[1, 4, 1, 500], [], []], "blocks.0", 2)
MIXED = Launch("aten::bmm", [[4, 1, 500], [4, 500, 16]], "blocks.0", 3)
EXPERTS = Launch("aten::bmm", [[8, 1, 100], [8, 100, 300]], "blocks.0.feed", 3)
STATE = Launch("aten::bmm", [[4, 1, 16], [4, 16, 32]], "blocks.0", 3)
FADING = Launch("aten::mul", [[1, 4, 16, 32], []], "blocks.0", 2)
# What is planted, with the us that it costs per token.
COPIED = Launch("aten::cat", [[[1, 4, 150_000, 16], [1, 4, 1, 16]], []], "blocks.0", 80)
PIECES = tuple(
    Launch(f"aten::{name}", [[1, 1, 1000], []], "blocks.0.norm", 2, 1.0) for name in ("pow", "mean", "rsqrt", "mul") * 4
)
READ = Launch(
    "aten::_local_scalar_dense", [[1]], "", 1, kernel="Memcpy DtoH (Device -> Pageable)", category="gpu_memcpy"
)
LATE = PLAIN[0]._replace(idle=30.5)
PLANTED = {
    tokens.TRAFFIC: ((COPIED, *PLAIN), 80.5),
    tokens.SMALL: ((*PIECES, *PLAIN), 15 * 3 + 2.5),
    tokens.WAITS: ((LATE, *PLAIN[1:], READ), 30.5 + 1.5),
}
RATES = {"dram": 1e12, "fp32": 1e15}
# us that a launch takes the host, and how many times as long under a profiler.
HOST, SLOWED = 5.0, 2.4


def little(name: str, us: float = 2.0) -> Launch:
    return Launch(f"aten::{name}", [[1, 1, 1000], []], "blocks.0", us, 1.0)


def product(side: int) -> Launch:
    """A product that reads 4 * side**2 bytes, of which it takes a tenth longer than it has to."""
    return Launch("aten::mm", [[1, side], [side, side]], "blocks.0.up", 1.1 * 4e-6 * side**2, 1.0)


def decode(wide: bool, planted: str = "", layers: int = 3) -> list[Launch]:
    """The launches of a token of a decoder. Of a wide one, the GPU takes longer than the host; of a narrow one, less."""
    pieces = ("mean", "sub", "pow", "mean", "add", "rsqrt", "mul", "mul") if planted == "pieces" else ("norm",)
    norm, sides = [little(name) for name in pieces], (4200, 2500, 4500) if wide else (900, 700, 900)
    large, middle, larger = map(product, sides)
    few = [little(name) for name in ("copy_", "copy_")]
    layer = [little("add"), *norm, large, *norm, *norm, *few, ATTENTION, little("clone"), middle, little("add"), *norm,
             larger, little("gelu"), larger]  # fmt: skip
    layer += [READ._replace(after=40)] * (planted == "waits in layers")
    return [*layer * layers, *norm, large, CHOICE, *[READ._replace(after=300)] * (planted == "waits")]


class Run(NamedTuple):
    """A launch in time, in us: when the host called it, and when it began on the GPU."""

    launch: Launch
    called: float
    start: float

    @property
    def end(self) -> float:
        return self.start + self.launch.us


def queue(token: Sequence[Launch], host: float, begin: float, ahead: float) -> Iterator[list[Run]]:
    """The launches of each token of a step that begins at a time.

    host: us that each launch takes the host; the GPU does not begin before that. It gets work from the start, which
    takes it so long: `ahead`. For a result, the host waits.
    """
    at, free = begin, begin + ahead
    for _ in range(1 + FURTHER):
        made = []
        for launch in token:
            at += host
            made.append(Run(launch, at, max(at + LATENCY, free + launch.idle)))
            free = made[-1].end
            if launch.category != "kernel":
                at = free + launch.after
        yield made


def token_ns(steps: Sequence[Sequence[list[Run]]]) -> float:
    """What a further token takes, between the ends of those before and behind."""
    return 1e3 * sum(step[-1][-1].end - step[0][-1].end for step in steps) / FURTHER / len(steps)


def run_steps(token: Sequence[Launch], host: float = 1.0, ahead: float = 1e3, count: int = 2) -> list[list[list[Run]]]:
    """Steps that generate 1 + FURTHER tokens by the same launches; by default the host is always ahead."""
    return [[*queue(token, host, LONG_US * step, ahead)] for step in range(count)]


def lay_out(steps: Sequence[Sequence[list[Run]]]) -> list[Event]:
    """The events of a trace of these steps."""
    events, number = [], 0
    for place, step in enumerate(steps):
        begin, edges = LONG_US * place, [LONG_US * place + 0.1]
        for token in step:
            for launch, at, start in token:
                number += 1
                inputs = {"Input Dims": launch.shapes, "Input type": [_kind(one) for one in launch.shapes]}
                told = {"External id": number, "Concrete Inputs": [""] * len(launch.shapes), **inputs}
                events.append(span(launch.operator, at - 0.1, 0.9, **told))
                if launch.module:
                    events.append(span(f"profzoo:module:{launch.module}:Linear", at - 0.11, 0.95))
                events.append(called(at, number, operator=number))
                more = {"category": launch.category, "stream": 7, "device": 0, "context": 1}
                events.append(ran(launch.kernel, start, launch.us, number, number, **more))
            edges.append(token[-1].called + 0.85)
        end = edges[-1] + 1
        events += [part("step", begin, end + 0.5 - begin), part("forward", begin, end + 0.2 - begin)]
        events += [part(PREFILL, edges[0], edges[1] - edges[0]), part(DECODE, edges[1], end - edges[1])]
    return events


def _kind(shape: object) -> str:
    return "" if not shape else "TensorList" if isinstance(shape[0], list) else "float"


def divide(
    folder: Path, token: Sequence[Launch], further_ns: float, first_ns: float = 1e5, **profiled: float
) -> pd.DataFrame:
    """The table of a trace and of unprofiled steps whose tokens take so long, all of them files."""
    events = json.dumps({"traceEvents": lay_out(run_steps(token, **profiled))})
    (folder / "t.json").write_text(events)
    write_csv(owners.tabulate_launches(read_trace(folder / "t.json")), str(folder / "launches.csv"))
    times = {f"token_{place}_ns": round(further_ns) if place else round(first_ns) for place in range(1 + FURTHER)}
    steps = pd.DataFrame({"step": range(12), "wall_ns": 10**6, "gpu_ns": 10**6, "items": 1}).assign(**times)
    steps.to_csv(folder / "time.csv", index=False)
    (folder / "time.csv.json").write_text("{}")
    rows = [(name, rate, "byte/s", "") for name, rate in RATES.items()]
    pd.DataFrame(rows, columns=["peak", "rate", "unit", "how"]).to_csv(folder / "peaks.csv", index=False)
    files = str(folder / "time.csv"), str(folder / "time.csv.json")
    tokens.main(str(folder / "launches.csv"), files, str(folder / "peaks.csv"), str(folder / "tokens.csv"))
    return read(folder / "tokens.csv", tokens.TABLE)


def wall_ns(token: Sequence[Launch]) -> float:
    """What a token takes on the GPU, summed launch by launch."""
    return 1e3 * sum(launch.us + launch.idle for launch in token)


def test_parts_are_those_of_the_launches(tmp_path: Path) -> None:
    table = divide(tmp_path, PLAIN, wall_ns(PLAIN))
    rows = table[table["range"] == DECODE].set_index("module")
    assert rows["kind"].to_dict() == {
        "blocks.0.norm": tokens.BETWEEN, "blocks.0": tokens.PRODUCTS, "blocks.0.up": tokens.PRODUCTS,
        "(decode)": tokens.SAMPLING,
    }  # fmt: skip
    product, attention = rows.loc["blocks.0.up"], rows.loc["blocks.0"]
    assert [product[name] for name in tokens.PARTS] == pytest.approx([8000, 0, 12, 0, 1988, 500, 0], rel=1e-3)
    assert [attention[name] for name in tokens.PARTS] == pytest.approx([0, 256, 0.512, 0, 2743.5, 500, 0], rel=1e-3)
    assert product["weights_bytes"] == pytest.approx(8e6, rel=1e-6) and attention["cache_bytes"] == 2 * 500 * 64 * 4
    assert rows["launches"].eq(1).all() and rows["tokens"].eq(FURTHER).all()
    # By construction, and by a sum that knows nothing of parts.
    assert rows["ns"].sum() == pytest.approx(wall_ns(PLAIN), rel=1e-6)
    assert rows["traced_ns"].sum() == pytest.approx(wall_ns(PLAIN), rel=1e-6)
    assert table.loc[table["range"] == PREFILL, "ns"].sum() == pytest.approx(1e5, rel=1e-6)


@pytest.mark.parametrize(
    ("launches", "weights", "cache"),
    [
        ([SCORES, SOFTMAX, MIXED], 0, 2 * 500 * 64),
        ([REPEATED, ATTENTION], 0, 500 * 64),
        ([REPEATED, SCORES, SOFTMAX, MIXED], 0, 500 * 64),
        ([EXPERTS, SOFTMAX], 8 * 100 * 300, 0),
        ([STATE, FADING], 0, 4 * 16 * 32),
        ([EXPERTS, SCORES, SOFTMAX, MIXED, PRODUCT], 8 * 100 * 300 + 2_000_000, 2 * 500 * 64),
    ],
)
def test_weights_and_cache_are_told_apart(tmp_path: Path, launches: list[Launch], weights: int, cache: int) -> None:
    rows = divide(tmp_path, launches, wall_ns(launches)).query("range == 'decode'")
    sums = rows[["weights_bytes", "cache_bytes", "weights_ns", "cache_ns", "ns"]].sum().to_list()
    read = [4 * weights, 4 * cache]
    # A byte takes a thousandth of a ns.
    assert sums == pytest.approx([*read, *(1e-3 * size for size in read), wall_ns(launches)], rel=1e-6)


def in_time(*given: tuple[str, Launch, float]) -> pd.DataFrame:
    """A step's launches of ranges, which begin at times in us."""
    return pd.DataFrame(
        {"step": 0, "order": order, "kind": "kernel", "name": launch.kernel, "start_ns": 1e3 * start, "ns": 1e3 * launch.us,
         "queued_ns": 1e3, "range": name, "module": launch.module, "operator": launch.operator,
         "shapes": json.dumps(launch.shapes), "needed_product_flop": float(again), "needed_bytes": 8e6 * again}
        for order, (name, launch, start) in enumerate(given)
        for again in [not (order and given[order - 1][1] is launch)]
    )  # fmt: skip


def test_launches_on_another_stream_neither_move_the_border_nor_part_an_operator() -> None:
    """A copy of the prompt that runs behind all further tokens, and one between two launches of an operator."""
    again = PRODUCT._replace(module="blocks.1.up")
    side = Launch("aten::copy_", [[8], [8]], "(prefill)", 1)
    steps = in_time((PREFILL, PRODUCT, 0), (PREFILL, side, 45), (DECODE, again, 11), (DECODE, again, 24), (DECODE, side, 22),
                    (DECODE, PRODUCT, 35))  # fmt: skip
    table = tokens.divide_tokens(steps, tokens.Measured(10_000, 35_000, 1), tokens.Roofs(1e3, {}))
    rows = table.set_index(["range", "module"])
    assert rows.loc[(DECODE, "blocks.1.up"), ["kind", "launches"]].to_list() == [tokens.PRODUCTS, 2]
    assert rows["traced_ns"].groupby("range").sum().to_dict() == {PREFILL: 11_000, DECODE: 35_000}


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([[100, 10, 10]] * 6 + [[100]] * 6, (100, 10, 1)),
        ([[100, 10], [100, 10, 40]] * 6, (100, 20, 1.5)),
        ([[], [100, 10]] * 6, (100, 10, 1)),
        ([[100]] * 12, None),
    ],
)
def test_steps_may_generate_different_numbers_of_tokens(
    steps: list[list[int]], found: tuple[float, ...] | None
) -> None:
    """Rates are of all tokens over all time; further tokens count alike."""
    # The first step is left out.
    table = pd.DataFrame({"step": range(13), "wall_ns": 5, "gpu_ns": 5}).join(
        pd.DataFrame([dict(enumerate(own)) for own in (steps[-1], *steps)]).add_prefix("token_").add_suffix("_ns")
    )
    measured = tokens.measure_tokens(table)
    assert measured == (found and tokens.Measured(*found))
    told = tokens.describe_tokens(table, {"cell": {"shape": {}}, "batch": 3})  # type: ignore[typeddict-item]
    if found:
        rate = sum(map(len, steps)) / sum(map(sum, steps))
        assert told["tokens_per_s"] == pytest.approx(3e9 * rate) and told["generated"] == 1 + found[2]
    else:
        assert told == {}


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_named_first_with_its_time(tmp_path: Path, cause: str) -> None:
    token, cost = PLANTED[cause]
    table = divide(tmp_path, token, wall_ns(token))
    causes = tokens.rank_causes(table[table["range"] == DECODE])
    # Of small kernels, one would be left; idle time between the last token and its successor is there once less.
    assert causes.index[0] == cause and causes.iloc[0] == pytest.approx(
        1e3 * cost, rel=0.02 + 0.34 * (cause == "waits")
    )
    assert table.loc[table["range"] == DECODE, "ns"].sum() == pytest.approx(wall_ns(token), rel=1e-6)


@pytest.mark.parametrize(("wide", "host"), [(True, HOST), (True, 3 * HOST), (False, HOST)])
@pytest.mark.parametrize(
    ("planted", "cause"), [("pieces", tokens.SMALL), ("waits", tokens.WAITS), ("waits in layers", tokens.WAITS)]
)
def test_a_cause_is_told_as_what_the_token_takes_without_it(
    tmp_path: Path, planted: str, cause: str, wide: bool, host: float
) -> None:
    """Of a queue of launches, whose host a profiler slows down."""
    plain, slow = (token_ns(run_steps(decode(wide, name), host, 0.0)) for name in ("", planted))
    found = [
        tokens.rank_causes(table[table["range"] == DECODE])
        for name, ns in (("", plain), (planted, slow))
        for table in [divide(tmp_path, decode(wide, name), ns, host=SLOWED * host, ahead=0.0)]
    ]
    assert found[1].index[0] == cause
    told = found[1][cause] - found[0].get(cause, 0.0)
    # A profiler that makes the host slower than the GPU hides how long waits hold it up.
    assert (0.85 if host > HOST else 0.94) < told / (slow - plain) < 1.04


@pytest.mark.parametrize("faster", [0.7, 0.98, 1.3])
def test_idle_time_is_scaled_to_the_unprofiled_run(tmp_path: Path, faster: float) -> None:
    """Busy time stays; what the GPU cannot have been idle is told as what does not add up."""
    token = tuple(launch._replace(idle=6.5) for launch in PLAIN)
    measured = faster * wall_ns(PLAIN)
    rows = divide(tmp_path, token, measured).query("range == 'decode'")
    busy = 1e3 * sum(launch.us for launch in token)
    assert rows["ns"].sum() == pytest.approx(measured, rel=1e-6)
    assert rows[["gap_ns", "host_ns"]].to_numpy().sum() == pytest.approx(measured - busy, rel=1e-6)
    off = rows.loc[rows["kind"] == tokens.UNEXPLAINED, "ns"].sum()
    assert off == pytest.approx(min(measured - busy, 0), abs=1e-3)
    assert rows["traced_ns"].sum() == pytest.approx(wall_ns(token), rel=1e-6)


def test_without_tokens_or_peaks_there_are_no_rows(tmp_path: Path) -> None:
    assert tokens.measure_tokens(pd.DataFrame({"step": range(9), "wall_ns": 5.0, "gpu_ns": 5.0})) is None
    assert (
        len(tokens.divide_tokens(pd.DataFrame({"step": [np.nan]}), tokens.Measured(1, 1, 1), tokens.Roofs(1, {}))) == 0
    )


def test_a_step_that_generates_has_a_range_up_to_the_first_token_and_one_behind(tmp_path: Path) -> None:
    tiny = {**zoo.TINY["gpt"], "warmup": 1, "window": 2}
    one = settings.resolve_cell(
        "gpt", "inference", "torch", normalise_config({"settings": {"gpt": tiny}, "device": "cpu"})
    )
    files = tmp_path / "operators.csv", tmp_path / "t.json.gz"
    run(one, recorders.TorchProfiler(CPU, one["profiler"], 2, *files))
    table = owners.tabulate_operators(read_trace(files[1]))
    assert set(table["step"].dropna()) == {0, 1}
    for _, step in table[table["module"] == "blocks.1.widen"].groupby("step"):
        products = step[step["operator"] == "aten::addmm"]
        assert products["range"].to_list() == products["direction"].to_list() == [PREFILL] + [DECODE] * 4
    # Ranges follow one another.
    assert all(a <= b for a, b in pairwise(table.loc[table["range"] == PREFILL, "start_ns"]))


def test_ranges_of_a_cpu_add_up_to_its_steps() -> None:
    """Although prefill and decode lie within the forward pass."""
    times = {"step": 100, "forward": 80, PREFILL: 30, DECODE: 49, "data": 5}
    table = pd.DataFrame({"kind": "range", "name": times.keys(), "cpu_ns": times.values()})
    _, ranges = activity.summarise_ranges(table, {"device_type": "cpu"})
    assert {name: ns for name, (ns, _) in ranges.items()} == {
        "forward": 1, PREFILL: 30, DECODE: 49, "data": 5, "other": 15,
    }  # fmt: skip


def test_the_page_names_the_floor_and_the_causes_above_it(tmp_path: Path) -> None:
    token = PLANTED[tokens.TRAFFIC][0]
    rows = divide(tmp_path, token, wall_ns(token))
    cell = pd.Series({"tokens_per_s": 79_000.0, "user_tokens_per_s": 9_900.0})
    said = describe_tokens(rows, cell)
    assert "each further one 102 µs: 9,900 tokens per second for each sample, 79,000 in all." in said["says"]
    assert "with a cache of 256 kB. Above that: extra traffic 80.5 µs (cat in blocks.*); " in said["says"]
    parts = tokens.list_parts(rows[rows["range"] == DECODE])
    assert parts.sum() == pytest.approx(wall_ns(token), rel=1e-6) and parts[tokens.TRAFFIC] == 80_000
    assert [row[0] for row in said["parts"]] == [name for name, ns in parts.items() if ns]
    assert said["layers"][0][:4] == ["blocks.*", tokens.TRAFFIC, "cat", "1"]


def test_a_sweep_is_drawn_with_a_line_for_each_context() -> None:
    sizes = [(batch, context) for context in (1024, 8192) for batch in (1, 8)]
    rows = [{"model": f"gpt@bf16+batch{batch}+context{context}", "phase": "inference", "batch": batch,
             "context": context, "token_ns": 1e6 * batch**0.5, "tokens_per_s": 1e3 * batch**0.5}
            for batch, context in sizes]  # fmt: skip
    figure = draw(pd.DataFrame([*rows, {"model": "lstm", "phase": "train", "batch": 3}]))
    texts = [one.get_text() for one in figure.axes[0].get_legend().get_texts()]
    assert texts == ["gpt@bf16, context 1,024", "gpt@bf16, context 8,192"]
    assert [line.get_xdata().tolist() for line in figure.axes[0].lines] == [[1, 8**0.5]] * 2
    assert draw(pd.DataFrame({"model": ["lstm"], "phase": ["train"]})).axes[0].lines[:] == []


def test_every_part_of_a_token_is_drawn(tmp_path: Path) -> None:
    token = PLANTED[tokens.WAITS][0]
    rows = divide(tmp_path, token, 1.2 * wall_ns(token)).assign(model="gpt@bf16", phase="inference")
    figure = token_parts.draw(rows)
    bars = [bar for bar in figure.axes[0].patches if bar.get_width()]
    assert sum(bar.get_width() for bar in bars) == pytest.approx(100, rel=1e-6)
    # Not what takes less than a thousandth: activations.
    assert len(bars) == sum(tokens.list_parts(rows[rows["range"] == DECODE]) > 0)
    assert token_parts.draw(rows[:0]).axes[0].patches[:] == []


def test_idle_time_and_launches_of_a_recording_are_its_wall_time() -> None:
    """Of an H100, whose forward pass stands for a prompt, and the rest of its step for further tokens."""
    launches = owners.tabulate_launches(read_trace(DATA / "torch/bert.train.trace.json.gz")).astype({"range": "object"})
    prompt = launches["range"].isin(["transfer", "forward"])
    launches["range"] = np.where(prompt, PREFILL, DECODE)
    table = tokens.divide_tokens(launches, tokens.Measured(1e7, 1e6, 8), tokens.Roofs(3e3, {}))
    own = launches[launches["step"].eq(0)]
    ends = (own["start_ns"] + own["ns"]).groupby(own["range"]).max()
    walls = ends[PREFILL] - own["start_ns"].min(), (ends[DECODE] - ends[PREFILL]) / 8
    sums = table.groupby("range")[["traced_ns", "launches"]].sum()
    assert sums.loc[[PREFILL, DECODE], "traced_ns"].to_list() == pytest.approx(walls, rel=1e-6)
    assert sums.loc[[PREFILL, DECODE], "launches"].to_list() == [sum(prompt[own.index]), sum(~prompt[own.index]) / 8]


@pytest.mark.parametrize(
    ("planted", "kinds"), [("wide waits", [tokens.WAITS]), ("narrow pieces", [tokens.SMALL, tokens.BETWEEN])]
)
def test_a_cause_on_an_h100_is_told_as_what_the_token_takes_without_it(planted: str, kinds: Sequence[str]) -> None:
    """Where the profiler made a token 1.7 and 1.9 times as long, and 1.7 and 6.5 times without the cause."""
    recorded = pd.read_csv(DATA / "torch/tokens.launches.csv.gz")
    told, ns = [], []
    for cell in (planted.split()[0], planted):
        rows = recorded[recorded["cell"] == cell]
        ns.append(float(rows["further_ns"].iloc[0]))
        measured = tokens.Measured(1e7, ns[-1], FURTHER)
        table = tokens.divide_tokens(rows.assign(step=0), measured, tokens.Roofs(3010, {"bf16": 7e5}))
        told.append(tokens.rank_causes(table[table["range"] == DECODE]))
    assert told[1].index[0] == kinds[0]
    more = [causes.reindex(kinds, fill_value=0.0).sum() for causes in told]
    assert more[1] - more[0] == pytest.approx(ns[1] - ns[0], rel=0.03)


def test_planted_decoders_generate_the_same_tokens() -> None:
    """In fp32, where the order in which norms add up chooses no other token."""
    sizes = {**decoder.SHAPE, "vocabulary": 50, "hidden": 32, "layers": 2, "heads": 4, "generated": 5, "tokens": 7}
    made = []
    for planted in ({}, {"copies": True}, {"pieces": True}, {"waits": True}):
        network = decoder.build(SimpleNamespace(**{**sizes, **planted})).float()
        dice = torch.Generator().manual_seed(3)
        for weight in network.parameters():
            weight.data = 0.2 * torch.randn(weight.shape, generator=dice)
        made.append(decoder.infer(network, torch.arange(14).view(2, 7)).tolist())
    assert len({*made[0][0]}) > 1 and made[1:] == made[:1] * 3
