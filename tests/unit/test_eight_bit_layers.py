"""Linear layers that multiply in 8 bits: against exact products, what is refused, and what tables count of them."""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from profzoo.cell import settings
from profzoo.compare import numerics
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.harness.observers import first_steps
from profzoo.harness.step import training_step
from profzoo.harness.variants import eight_bit_layers
from profzoo.harness.variants.eight_bit_layers import LARGEST, UNITS, EightBitLinear
from profzoo.op_costs.operators import operator_cost
from profzoo.statistics import rounding_errors
from profzoo.tables import roofline
from profzoo.tools.ncu import command, estimates
from tests import slow, zoo
from tests.harness_cells import needs_eight_bits
from tests.numeric_runs import side

CPU = torch.device("cpu")
# Products of these sizes take longer in several threads.
torch.set_num_threads(1)
FORMATS = ("fp8", "int8")


@pytest.fixture(autouse=True)
def _fast_path() -> Iterator[None]:
    """Conversion turns torch's fused path of Transformers off, for the whole process."""
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def cell(precision: str, phase: str = "inference") -> Any:
    return {"model": "net", "phase": phase, "precision": precision}


def network(**more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"first": nn.Linear(64, 128), "second": nn.Linear(128, 32, bias=False), **more})


@pytest.mark.parametrize("precision", FORMATS)
@pytest.mark.parametrize("by_row", [True, False])
def test_rounding_is_within_a_unit_and_the_largest_number_is_exact(precision: str, by_row: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(40, 96, generator=generator) * torch.logspace(-3, 3, 40)[:, None]
    rounded, scale = eight_bit_layers.quantise(values, precision, by_row)
    assert rounded.dtype == eight_bit_layers.DTYPES[precision]
    back = rounded.double() * scale
    largest = values.abs().amax(-1, keepdim=True) if by_row else values.abs().amax()
    if precision == "int8":
        assert ((back - values).abs() <= largest / LARGEST["int8"] / 2 * (1 + 1e-6)).all()
    else:
        normal = values.abs() > largest / LARGEST["fp8"] * 2**-6
        error = (back - values).abs() / values.abs()
        assert (error[normal] <= UNITS["fp8"]).all() and error[normal].max() > UNITS["fp8"] / 2
    assert torch.allclose(back.abs().amax(-1 if by_row else None).float(), largest.squeeze(), rtol=1e-6)
    rounded, scale = eight_bit_layers.quantise(torch.zeros(3, 16), precision, by_row)
    assert not rounded.float().any() and (scale > 0).all()


@pytest.mark.parametrize("precision", FORMATS)
def test_whole_numbers_have_exact_products(precision: str) -> None:
    """Numbers that both formats hold, with the largest number of the format in each row, so that scales are 1."""
    generator = torch.Generator().manual_seed(2)
    linear = nn.Linear(64, 32)
    weight = torch.randint(-7, 8, (32, 64), generator=generator).float()
    weight[:, 0] = inputs_largest = LARGEST[precision]
    linear.weight.data, linear.bias.data = weight, torch.arange(32.0)
    inputs = torch.randint(-7, 8, (2, 5, 64), generator=generator).float()
    inputs[..., 1] = inputs_largest
    inputs[..., 0] = 0
    found = EightBitLinear(linear, precision)(inputs)
    right = inputs.double() @ weight.double().T + torch.arange(32.0)
    assert found.shape == (2, 5, 32) and found.dtype == torch.bfloat16
    assert torch.equal(found, right.to(torch.bfloat16))


@pytest.mark.parametrize("precision", FORMATS)
def test_layers_are_replaced_but_for_those_that_cannot_be(precision: str) -> None:
    odd, attention, words = nn.Linear(10, 16), nn.MultiheadAttention(32, 2), nn.Embedding(48, 32)
    tied = nn.Linear(32, 48, bias=False)
    tied.weight = words.weight
    given = network(odd=odd, attention=attention, words=words, tied=tied)
    count = sum(one.numel() for one in given.parameters())
    found = eight_bit_layers.convert_linear_layers(given, cell(precision), CPU)
    made = {name for name, module in found.named_modules() if isinstance(module, EightBitLinear)}
    assert found is given and made == {"first", "second"}
    assert sum(one.numel() for one in found.parameters()) == count
    facts = eight_bit_layers.describe_eight_bit_layers(found)["eight_bit"]
    assert (facts["format"], facts["layers"], facts["other_linear_layers"]) == (precision, 2, 3)
    assert 0 < facts["largest_error"] < 2**0.5 * UNITS[precision]
    assert not torch.backends.mha.get_fastpath_enabled()
    # Numbers in 8 bits have no norm in torch, and do not count.
    assert torch.isfinite(first_steps.combine_norms(found.parameters()))


def test_a_layer_under_two_names_stays_one_and_a_network_may_be_a_layer() -> None:
    shared = nn.Linear(16, 16)
    given = nn.Sequential(shared, nn.ReLU(), shared)
    found: Any = eight_bit_layers.convert_linear_layers(given, cell("int8"), CPU)
    assert found[0] is found[2] and isinstance(found[0], EightBitLinear)
    alone = eight_bit_layers.convert_linear_layers(nn.Linear(16, 32), cell("int8"), CPU)
    assert isinstance(alone, EightBitLinear) and eight_bit_layers.describe_eight_bit_layers(nn.ReLU()) == {}


@needs_eight_bits
def test_layers_that_train_have_gradients_within_rounding() -> None:
    linear, alone = nn.Linear(64, 32), nn.Linear(64, 32)
    alone.load_state_dict(linear.state_dict())
    made = eight_bit_layers.convert_linear_layers(alone, cell("fp8", "train"), CPU)
    assert made.weight is alone.weight and made.bias is alone.bias
    facts = eight_bit_layers.describe_eight_bit_layers(made)["eight_bit"]
    assert (facts["format"], facts["scales"], facts["layers"], facts["other_linear_layers"]) == ("fp8", "tensor", 1, 0)
    assert 0 < facts["largest_error"] < 2 * UNITS["fp8"]
    # Of 37 rows, gradients of weights are sums that no product in fp8 takes as they are.
    inputs, gradient = torch.randn(37, 64), torch.randn(37, 32)
    found, right = [], []
    for layer, kept in ((made, found), (linear, right)):
        given = inputs.clone().requires_grad_()
        outputs = layer(given)
        outputs.backward(gradient)
        kept += [outputs.detach(), given.grad, layer.weight.grad, layer.bias.grad]
    for one, other in zip(found, right, strict=True):
        assert (one - other).norm() / other.norm() < 2 * UNITS["fp8"]
    assert not torch.equal(found[0], right[0]) and torch.allclose(found[3], right[3])


@needs_eight_bits
@pytest.mark.parametrize("more", [{}, {"optimizer": "8bit", "clip": 1.0, "ema": 0.9, "checkpoint": True}])
def test_a_network_trains_in_fp8_as_in_bf16(more: dict[str, Any]) -> None:
    losses: dict[str, list[float]] = {}
    for precision, given in (("bf16", {}), ("fp8", more)):
        tiny = zoo.cell("gpt", precision=precision, hidden=64, layers=2, **given)
        trainer, batch = zoo.trainer(tiny, zoo.network(tiny)), zoo.batch(tiny)
        torch.manual_seed(1)
        steps = (training_step.run_training_step(trainer, batch).detach() for _ in range(20))
        losses[precision] = [float(loss) for loss in steps]
    assert losses["fp8"] == pytest.approx(losses["bf16"], rel=0.05) and losses["fp8"] != losses["bf16"]
    assert losses["fp8"][-1] < 0.9 * losses["fp8"][0]


def test_what_cannot_be_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^net inference: precision = 'fp8' is for linear layers .* use bf16$"):
        eight_bit_layers.convert_linear_layers(nn.Conv2d(3, 4, 1), cell("fp8"), CPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A10")
    why = (
        r"^net inference: precision = 'fp8' needs a GPU of compute capability 8\.9 or more, and A10 has 8\.6: use bf16$"
    )
    with pytest.raises(ConfigError, match=why):
        eight_bit_layers.convert_linear_layers(network(), cell("fp8"), torch.device("cuda"))
    monkeypatch.setitem(sys.modules, "torchao.float8", None)
    with pytest.raises(
        ConfigError, match=r"^net train: precision = 'fp8' in training needs torchao, .*profzoo\[torchao\]"
    ):
        eight_bit_layers.convert_linear_layers(network(), cell("fp8", "train"), CPU)
    for given, line in (
        ({"models": "bert@int8"}, "bert train: precision: int8 is for inference"),
        ({"settings": {"mine": {"command": "python x.py", "precision": "fp8"}}, "models": "mine"}, "cannot be done to"),
    ):
        checked = configuration.normalise_config(given)
        with pytest.raises(ConfigError, match=line):
            settings.resolve_cell(given["models"], "train", "time", checked)


@pytest.mark.parametrize(("operator", "precision"), [("_scaled_mm", "fp8"), ("_int_mm", "int8")])
def test_a_wrong_product_is_noticed_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, operator: str, precision: str
) -> None:
    right = getattr(torch, operator)

    def wrong(*given: Any, **named: Any) -> Tensor:
        """Forget the last sixteenth of the sum."""
        part = given[0].clone()
        part.view(torch.int8)[:, -part.shape[1] // 16 * 2 :] = 0
        return right(part, *given[1:], **named)

    monkeypatch.setattr(torch, operator, wrong)
    said = r"a product of 64 x 128 is off by .*%, of at most .*% by rounding|on this device"
    with pytest.raises(ConfigError, match=said):
        eight_bit_layers.convert_linear_layers(network(), cell(precision), CPU)


@needs_eight_bits
def test_a_wrong_gradient_is_noticed_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    library = importlib.import_module("torchao.float8.float8_linear").matmul_with_hp_or_float8_args
    right = library.backward

    def wrong(context: Any, gradient: Tensor) -> Any:
        """Forget the last sixteenth of the sum."""
        return right(context, gradient * (torch.arange(len(gradient)) < len(gradient) * 15 // 16)[:, None])

    monkeypatch.setattr(library, "backward", staticmethod(wrong))
    with pytest.raises(
        ConfigError, match=r"'fp8': a product of 64 x 128 is off by 2\d\.\d% on this device, of at most"
    ):
        eight_bit_layers.convert_linear_layers(network(), cell("fp8", "train"), CPU)


@pytest.mark.parametrize("precision", slow.first(["int8", "fp8"]))
def test_sides_are_within_precision_by_the_units_of_their_formats(precision: str) -> None:
    whole = side("transformer", "inference")
    found = numerics.compare_numbers(whole, side("transformer", "inference", precision=precision))
    # Of fp8, a tenth of the outputs may be rounding.
    assert found.result == {"int8": numerics.WITHIN, "fp8": numerics.UNDECIDED}[precision]
    assert found.difference <= found.tolerance and (found.tolerance > rounding_errors.LOOSE) == (precision == "fp8")
    assert found.difference < UNITS[precision] and rounding_errors.unit_of_rounding(precision) == UNITS[precision]
    # Another computation is different in 8 bits too.
    changed = side("transformer", "inference", "relu", precision=precision)
    assert numerics.compare_numbers(whole, changed).result == numerics.DIFFERENT


def test_operations_are_those_that_torch_counts() -> None:
    values, weight = (torch.ones(rows, 64).to(torch.float8_e4m3fn) for rows in (32, 48))
    with FlopCounterMode(display=False) as counter:
        torch._scaled_mm(values, weight.t(), torch.tensor(1.0), torch.tensor(1.0), out_dtype=torch.bfloat16)
    dims = [[32, 64], [64, 48]]
    types = ["c10::Float8_e4m3fn"] * 2 + ["float", "float", "", "", "Scalar", "Scalar"]
    found = operator_cost("aten::_scaled_mm", [*dims, [], [], [], [], [], []], types, [""] * 6 + ["15", "False"])
    assert found is not None and found.product_flop == counter.get_total_flops() == 2 * 32 * 64 * 48
    assert (found.other_flop, found.bytes) == (0, 32 * 64 + 64 * 48 + 4 + 4 + 2 * 32 * 48)
    whole = operator_cost("aten::_int_mm", dims, ["signed char"] * 2, ["", ""])
    assert whole is not None and whole.product_flop == 2 * 32 * 64 * 48
    assert whole.bytes == 32 * 64 + 64 * 48 + 4 * 32 * 48


def test_ncu_counts_products_in_8_bits_in_cells_that_have_them() -> None:
    given = configuration.normalise_config({"models": "bert"})["ncu"]
    before = given["sets"]["roofline"]["metrics"]
    for variant, more in (("@bf16", []), ("@fp8", ["sm__ops_path_tensor_src_fp8.sum"]),
                          ("@int8", ["sm__ops_path_tensor_src_int8.sum"])):  # fmt: skip
        one = settings.resolve_cell(f"bert{variant}", "inference", "ncu", configuration.normalise_config({}))
        adapted = command.adapt_to_cell(given, "roofline", one)
        assert adapted["sets"]["roofline"]["metrics"] == [*before, *more]
        assert command.adapt_to_cell(given, "traffic", one)["sets"] == given["sets"]
    counted = pd.DataFrame({"sm__ops_path_tensor_src_fp8.sum": [19_327_352_832]})
    assert estimates.derive_quantities(counted)["tensor_fp8_flop"].tolist() == [2 * 4096 * 3072 * 768]


@pytest.mark.parametrize("precision", FORMATS)
def test_a_product_at_its_measured_peak_is_bound_by_tensor_cores(precision: str) -> None:
    peaks = {"dram": 1e12, "l2": 1e13, "fp32": 5e13, "bf16": 1e15, precision: 2e15}
    launch = {"mean_ns": 1000.0, "dram_bytes": 1e5, "l2_bytes": 1e5, "fp32_flop": 0.0}
    launch[f"tensor_{precision}_flop"] = 1.6e9
    found = roofline.bound_launches(pd.DataFrame([launch]), peaks).iloc[0]
    assert (found["bound"], found["tensor_flop"]) == ("tensor", 1.6e9) and found["efficiency"] == pytest.approx(0.8)
