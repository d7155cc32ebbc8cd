"""What the zoo's steps need, by the operators of a trace, against torch's own count of the same steps."""

import json
from pathlib import Path

import pandas as pd
import pytest
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from profzoo.cell import settings
from profzoo.harness.observers.recorders import Recorder
from profzoo.harness.step import step_loop
from profzoo.op_costs.operators import operator_cost
from tests import slow, zoo
from tests.trace_calls import list_calls, needed_by_calls

# What torch has no formula for.
UNCOUNTED = ("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", "aten::mv",
             "aten::_scaled_dot_product_flash_attention_for_cpu")  # fmt: skip

# Enough for what operators need to be seen.
SMALLER = {"mobilenetv2": {"size": 32, "batch": 2}}


def step(name: str, phase: str) -> None:
    """One step of the tiny cell on the CPU."""
    tiny = zoo.cell(name, phase, **SMALLER.get(name, {}))
    step_loop.run_steps(tiny, zoo.network(tiny), zoo.CPU, Recorder(zoo.CPU))


def traced(name: str, phase: str, path: Path) -> pd.DataFrame:
    """The calls of operators in that step."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step(name, phase)
    profiler.export_chrome_trace(str(path))
    return list_calls(json.loads(path.read_text())["traceEvents"])


def counted_again(table: pd.DataFrame) -> int:
    """What torch counts too much: the gradient of grouped weights once for each group."""
    excess = 0
    for call in table[table["operator"] == "aten::convolution_backward"].itertuples():
        values = json.loads(call.values)
        groups, (of_input, of_weight, _) = int(values[9]), json.loads(values[10].lower())
        both = operator_cost(call.operator, json.loads(call.dims), json.loads(call.types), values)
        assert both is not None
        excess += (groups - 1) * of_weight * both.product_flop // (of_input + of_weight)
    return excess


@pytest.mark.parametrize(
    ("name", "phase"),
    slow.first(
        [
            *((name, phase) for name in ("mobilenetv2", "lstm") for phase in ("train", "inference")),
            *(("gpt", phase) for phase in settings.PHASES),
            ("vgg16", "inference"),
            ("unet", "inference"),
        ],
        1,
    ),
)
def test_products_of_a_step_are_those_that_torch_counts(name: str, phase: str, tmp_path: Path) -> None:
    table = traced(name, phase, tmp_path / "trace.json")
    own = needed_by_calls(table)
    with FlopCounterMode(display=False) as counter:
        step(name, phase)
    ours = own["needed_product_flop"][~table["operator"].isin(UNCOUNTED)].sum()
    # Torch sees through attention on the CPU, where it runs as products, but not where it is one operator.
    assert ours + counted_again(table) == counter.get_total_flops() > 0
    if name == "mobilenetv2" and phase == "train":
        assert counted_again(table) > ours
    if name == "lstm":
        assert own["needed_product_flop"].sum() > 100 * ours
    assert own["needed_other_flop"].sum() > 0


def test_the_parts_of_a_fused_encoder_layer_are_within_it(tmp_path: Path) -> None:
    """On the CPU it calls operators for all its products, so that what is left to itself has none."""
    table = traced("bert", "inference", tmp_path / "trace.json")
    own = needed_by_calls(table)["needed_product_flop"].groupby(table["operator"]).sum()
    layer = table[table["operator"] == "aten::_transformer_encoder_layer_fwd"].iloc[0]
    whole = operator_cost(layer.operator, *(json.loads(layer[name]) for name in ("dims", "types", "values")))
    assert whole is not None and own["aten::_transformer_encoder_layer_fwd"] == 0
    layers = (table["operator"] == "aten::_transformer_encoder_layer_fwd").sum()
    inside = own[["aten::addmm", "aten::_addmm_activation", "aten::mm", "aten::bmm"]].sum()
    with FlopCounterMode(display=False) as counter:
        step("bert", "inference")
    # Torch counts what is outside of these layers.
    assert inside == layers * whole.product_flop + counter.get_total_flops()
