"""What autocast does with operators, held against torch's lists, and against its own casts on CUDA in small programs.

Tensors are fake ones of a CUDA device: they have types and shapes, and torch's autocast for CUDA works on them.
"""

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from profzoo.fusion import autocast
from profzoo.fusion.autocast import CAST_BYTES, NARROW, OPERATORS, POLICIES, WIDE, WIDE_RESULT, WIDEST, Narrowed
from profzoo.fusion.calls import Flow, read_step
from profzoo.harness import ranges
from profzoo.range_names import DOMAIN
from profzoo.tools.torch.trace import make_trace
from tests import owned, slow
from tests.benchmarks import precision_programs as programs
from tests.planted.networks import transformer
from tests.written_programs import make_flow, tensor

HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
# What torch registers in files of cuDNN, and under another signature.
CUDNN, APPENDED = {"_cudnn_rnn", "cudnn_convolution", "cudnn_convolution_transpose"}, {"norm"}
# These run on no fake tensor.
OF_CUDA = {"_convolution", "cudnn_convolution", "cudnn_convolution_transpose", "gru_cell"}
# This operator torch refuses under autocast.
REFUSED = "aten::binary_cross_entropy"


def listed(macro: str) -> set[str]:
    """The operators of a list in torch's header."""
    (body,) = re.findall(rf"#define {macro}\(_\)\s(.*?)\n\n", HEADER.read_text(), re.DOTALL)
    return set(re.findall(r"_\((\w+)[,)]", body))


def test_the_lists_are_those_of_the_installed_torch() -> None:
    found = {policy: set(names.split()) for policy, names in OPERATORS.items()}
    assert found[NARROW] == listed("AT_FORALL_LOWER_PRECISION_FP") | CUDNN
    assert found[WIDE] == listed("AT_FORALL_FP32")
    assert found[WIDE_RESULT] == listed("AT_FORALL_FP32_SET_OPT_DTYPE") | APPENDED
    assert found[WIDEST] == listed("AT_FORALL_PROMOTE")


def test_torch_treats_no_other_operators_on_cuda() -> None:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [one for one in torch._C._dispatch_get_all_op_names() if one.startswith("aten::")]
    registered = {one.partition(".")[0] for one in names if has_kernel(one, "AutocastCUDA")}
    assert registered == {*POLICIES, REFUSED}


@contextmanager
def autocasting() -> Iterator[None]:
    """Autocast to bf16 for CUDA, also where no GPU is."""
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.autocast_increment_nesting()
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.clear_autocast_cache()
        torch.autocast_decrement_nesting()
        torch.set_autocast_dtype("cuda", torch.float16)


def narrowed(given: Any) -> Any:
    """Arguments with bf16 where torch's list has fp16."""
    if isinstance(given, Tensor):
        return given.to(torch.bfloat16) if given.dtype == torch.float16 else given
    return type(given)(map(narrowed, given)) if isinstance(given, tuple | list) else given


def test_results_have_the_types_that_the_lists_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each call that torch itself tests autocast with; what its other tests need may not be installed."""
    others = SimpleNamespace(TEST_WITH_ROCM=False, TestCase=object)
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_utils", others)
    given = importlib.import_module("torch.testing._internal.autocast_test_lists")
    told: dict[str, set[torch.dtype]] = {}
    with FakeTensorMode():
        lists = given.AutocastTestLists("cuda")
        torches = (lists.torch_fp16, lists.torch_fp32, lists.torch_need_autocast_promote)
        calls = [(torch, one) for group in torches for one in group]
        calls += [(torch._C._nn, one) for one in (*lists.nn_fp16, *lists.nn_fp32)]
        with autocasting():
            for module, (name, arguments, *rest) in calls:
                options = rest[0] if rest and isinstance(rest[0], dict) else {}
                if isinstance(arguments, tuple) and name not in OF_CUDA:
                    results = _tensors(getattr(module, name)(*narrowed(arguments), **options))
                    told.setdefault(name, set()).update(one.dtype for one in results)
    right = {NARROW: torch.bfloat16, WIDE: torch.float32, WIDE_RESULT: torch.float32, WIDEST: torch.float32}
    assert len(told) > 70
    assert told == {name: {right[POLICIES[f"aten::{name}"]]} for name in told}


class Log(TorchDispatchMode):
    """Notes each operator that runs: its name, and types and shapes of inputs and results."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[Tensor], list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.rows.append((func._schema.name, list(_tensors(args)), list(_tensors(result))))
        return result


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, tuple | list):
        for one in given:
            yield from _tensors(one)


def shape_of(name: str) -> SimpleNamespace:
    return SimpleNamespace(**{**programs.SHAPE, **programs.TINY, "program": name})


def batch_of(shape: SimpleNamespace) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    count = min(programs.PROGRAMS[shape.program].batch, shape.batch)
    return [
        torch.stack(several) for several in zip(*(programs.sample(shape, generator) for _ in range(count)), strict=True)
    ]


def cast_on_cuda(name: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of casts that torch makes in a step of a program, forward and backward."""

    # The kernel that a GPU would have, as torch chooses another one without.
    def attend(*given: Tensor, **_: object) -> Tensor:
        return torch.ops.aten._scaled_dot_product_flash_attention(*given)[0]

    for module in (F, transformer):
        monkeypatch.setattr(module, "scaled_dot_product_attention", attend)
    shape, trains = shape_of(name), programs.PROGRAMS[name].phase == "train"
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        with torch.device("cuda"):
            network = programs.build(shape).train(trains)
        for module in network.modules():
            module._buffers.update({key: one.to("cuda") for key, one in module._buffers.items() if one is not None})
        inputs, target = (mode.from_tensor(one).to("cuda") for one in batch_of(shape))
        with Log() as log, autocasting(), torch.set_grad_enabled(trains):
            outputs = network(inputs)
            result = programs.loss(outputs, target) if trains else outputs
    forward = sum(_casts(*row) for row in log.rows)
    return forward + (_gradient_casts(result) + sum(_mixed(*row) for row in log.rows) if trains else 0)


def _casts(name: str, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    types = {one.dtype for one in (*inputs, *results)}
    return name == "aten::_to_copy" and types == {torch.float32, torch.bfloat16}


def _mixed(name: str, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """Number of narrow inputs beside wide ones: autograd casts the gradients to their type."""
    floating = [one.dtype for one in inputs if one.is_floating_point() and one.ndim]
    narrow = floating.count(torch.bfloat16)
    elementwise = name in ("aten::add", "aten::mul", "aten::sub", "aten::div", "aten::cat")
    return narrow if elementwise and narrow < len(floating) else 0


def _gradient_casts(result: Tensor) -> int:
    """Number of nodes of autograd that cast a gradient back."""
    assert result.grad_fn
    waiting, seen = [result.grad_fn], {result.grad_fn}
    while waiting:
        following = {one for one, _ in waiting.pop().next_functions if one is not None} - seen
        seen |= following
        waiting += following
    return sum(one.name() == "ToCopyBackward0" for one in seen)


def cast_by_trace(name: str) -> int:
    """Number of casts that are expected, by a trace in fp32 on the CPU."""
    shape, trains = shape_of(name), programs.PROGRAMS[name].phase == "train"
    network = programs.build(shape).train(trains)
    ranges.mark_modules(network, ranges.torch_range)
    inputs, target = batch_of(shape)

    def step() -> None:
        network.zero_grad(set_to_none=True)
        with record_function(f"{DOMAIN}:step"), torch.set_grad_enabled(trains):
            with record_function(f"{DOMAIN}:forward"):
                outputs = network(inputs)
            if trains:
                with record_function(f"{DOMAIN}:loss"):
                    result = programs.loss(outputs, target)
                with record_function(f"{DOMAIN}:backward"):
                    result.backward()

    calls = read_step(make_trace(owned.of_steps([step] * 2))).calls
    return sum(one.casts for one in autocast.narrow_calls(Flow(calls)))


# A fake tensor has no cuDNN, and checkpoints run their blocks again only in the backward pass.
NAMES = [name for name in programs.PROGRAMS if name not in ("recurrent", "checkpointed")]
# Of sums and products of several results that are alike, and of layers that the CPU runs as other operators.
INEXACT = ("graph_attention", "upsampling", "volumes", "waves", "energies", "experts", "mixer", "contrastive")


@pytest.mark.parametrize(
    "name", slow.only(NAMES, "written_attention", "vocabulary", "residual_convolutions", "graph_sums")
)
def test_casts_are_as_many_as_torch_makes_on_cuda(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        right = cast_on_cuda(name, patched)
    assert right > 5 and cast_by_trace(name) == pytest.approx(right, abs=6 if name in INEXACT else 0)


LINEAR = {"around": ("aten::linear",)}
LAYER = ("addmm", [(8,), (4, 6), (6, 8)], [(4, 8)], LINEAR)
# 8 + 24 + 48 numbers are read and cast, and 32 are written.
CAST_LAYER = Narrowed((80 + 32) * 2, 3, 80 * CAST_BYTES)
ROWS = [(4, 8)]
# A backward pass of some other operator, so that gradients are computed.
TRAINED = ("neg", ROWS, ROWS, {"direction": "backward", "sequence": -1})


def expect(*calls: Sequence[Any]) -> list[Narrowed]:
    """What autocast changes of the calls behind a linear layer."""
    first, *found = autocast.narrow_calls(make_flow(LAYER, *calls))
    assert first == CAST_LAYER
    return found


@pytest.mark.parametrize(
    ("call", "right"),
    [
        (("gelu", ROWS, ROWS), Narrowed(64 * 2)),
        (("_softmax", ROWS, ROWS, {"around": ("aten::softmax",)}), Narrowed(64 * 4, 1, 32 * CAST_BYTES)),
        (("_log_softmax", ROWS, ROWS, {"around": ("aten::cross_entropy_loss", "aten::log_softmax")}), Narrowed(64 * 2)),
        (("native_layer_norm", ROWS, ROWS, {"around": ("aten::layer_norm",)}), Narrowed(64 * 4, 1, 32 * CAST_BYTES)),
        # A sum reads bf16, and its result is fp32; a mean is bf16 as well.
        (("sum", ROWS, [(4,)]), Narrowed(32 * 2 + 4 * 4)),
        (("mean", ROWS, [(4,)]), Narrowed(36 * 2)),
        # A weight in fp32 makes the result fp32, and reading two types takes as long as reading the wider one.
        (("mul", [(4, 8), (8,)], ROWS), Narrowed(72 * 4)),
        (("mul", [(4, 8), ()], ROWS), Narrowed((32 + 32) * 2 + 4)),
        (("addcmul", [(4, 8), (8,), (8,)], ROWS), Narrowed(80 * 4, 1, 32 * CAST_BYTES)),
        (("index_add", [(4, 8), tensor((9,), "long int"), (9, 8)], ROWS), Narrowed((32 + 72 + 32) * 4 + 9 * 8)),
        (("copy_", ROWS, ROWS, {"around": ("aten::clone",)}), Narrowed(64 * 2)),
        (("copy_", ROWS, ROWS), Narrowed(32 * 2 + 32 * 4)),
        (("gelu", ROWS, ROWS, {"direction": "optimizer"}), Narrowed(64 * 4)),
        (("gelu", ROWS, ROWS, {"updates": True}), Narrowed(64 * 4)),
        # The same layer again keeps its casts of weights; another one makes its own.
        (("addmm", [(8,), (4, 8), (8, 8)], ROWS, {**LINEAR, "instance": 1}), Narrowed((8 + 32 + 64 + 32) * 2)),
        (("addmm", [(8,), (4, 8), (8, 8)], ROWS, LINEAR), Narrowed((8 + 32 + 64 + 32) * 2, 2, 72 * CAST_BYTES)),
    ],
)  # fmt: skip
def test_what_autocast_changes_of_a_call_behind_a_layer(call: Sequence[Any], right: Narrowed) -> None:
    assert expect(call) == [right]


def test_gradients_of_casts_are_cast_back_behind_their_operators() -> None:
    """A cast of the step's input has no gradient; of a sum with fp32 it is cast where autograd hands it on."""
    behind = {"direction": "backward", "sequence": 0}
    layer, second = expect(("mm", [(4, 8), (8, 6)], [(4, 6)], behind), ("mm", [(6, 4), (4, 8)], [(6, 8)], behind))
    assert layer == Narrowed((32 + 48 + 24) * 2, 2, 56 * CAST_BYTES)
    assert second == Narrowed((24 + 32 + 48) * 2)
    mixed, _ = expect(("mul", [(4, 8), (8,)], ROWS), TRAINED)
    assert mixed == Narrowed(72 * 4, 1, 32 * CAST_BYTES)


def test_a_backward_pass_works_in_the_types_of_its_forward_pass() -> None:
    softmax = ("_softmax", ROWS, ROWS, {"around": ("aten::softmax",)})
    backward = [
        ("_softmax_backward_data", ROWS, ROWS, {"direction": "backward", "sequence": place}) for place in (2, 1)
    ]
    found = expect(("gelu", ROWS, ROWS), softmax, *backward)
    assert [one.bytes for one in found[2:]] == [64 * 4, 64 * 2] and [one.casts for one in found] == [0, 1, 1, 0]


def test_slices_and_results_without_a_shape_are_traced_to_what_made_them() -> None:
    """Slices of one layer's result, what a convolution has made, and layers that read the same input."""
    (attention,) = expect(("_scaled_dot_product_attention", [tensor((4, 2), part=True)] * 3, [], {
        "around": ("aten::scaled_dot_product_attention",), "kind": "opaque"}))  # fmt: skip
    assert attention == Narrowed(3 * 8 * 2)
    convolution = ("convolution", [(4, 8), (8, 8, 1)], [], {"around": ("aten::conv1d",), "kind": "opaque"})
    _, norm = expect(convolution, ("cudnn_batch_norm", [(4, 8, 5), (8,)], [(4, 8, 5)]))
    assert norm == Narrowed((160 + 160) * 2 + 8 * 4)
    second = {**LINEAR, "module": "another"}
    assert expect(("addmm", [(8,), (4, 6), (6, 6)], [(4, 6)], second))[0].casts == 3
