"""Planted steps on a simulated H200. Their launches are recorded on a CPU, with narrower matrices, and then judged.

Rates are those of an H200 as far as verdicts go by them; how long the CPU takes for an operator is given.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pandas as pd
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profzoo.tools.nsys.steps import steps as where
from profzoo.verdicts.causes import verdicts
from profzoo.what_if import predicted_gains, tables
from profzoo.what_if.program import process_number
from tests import known_rules, launched, simulated
from tests.gpu import planted
from tests.simulated import Act

# Width of the matrices on the CPU.
SEEN = 16
PEAKS = {"fp32": 51e12, "tf32": 400e12, "bf16": 765e12, "fp64": 60e12, "dram": 4.0e12, "l2": 6.5e12}
# Of products: flop/s, their bound and how near they come to it, the kernel's name, and what is counted of it. Nothing
# counts operations of tensor cores in fp64: such a product is seen by its bytes alone.
PRODUCTS: dict[torch.dtype, tuple[float, str, float, str, str]] = {
    torch.float32: (49e12, "simt", 0.96, "sm80_xmma_gemm_f32f32_f32f32_f32", "fp32_flop"),
    torch.bfloat16: (650e12, "tensor", 0.85, "nvjet_hsh_128x256_64x4_1x2_h_bz_NNT", "tensor_bf16_flop"),
    torch.float64: (56e12, "l2", 0.4, "cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1", ""),
}
COUNTED = ("fp32_flop", "fp16_flop", "tensor_bf16_flop", "tensor_fp16_flop", "tensor_tf32_flop")
# Size of L2, the shares of the rates of L2 and DRAM that elementwise kernels reach, and the shortest kernel in ns.
L2_BYTES, L2_PART, DRAM_PART, SHORTEST_NS = 50e6, 0.7, 0.9, 1300.0
# Factor by which nsys lengthens the CPU's time for an operator, and the share of that time that a view takes.
TRACED, VIEW = 1.3, 0.3
STEPS = 6


@dataclass
class Seen(TorchDispatchMode):
    """What the operators of a step are on a GPU: `acts` of the CPU, and `kernels`, what is known of each group's.

    width: of the matrices on the GPU; operator_ns: that the CPU takes for one.
    """

    width: int
    operator_ns: float
    part: str = ""
    busy_ns: float = 0.0
    acts: list[Act] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def act(self, kind: str, before: float, call: float, **more: Any) -> None:
        """Add an action, after the CPU's work since the last one."""
        self.acts.append(Act(kind, 0, self.part, before + self.busy_ns, call, **more))
        self.busy_ns = 0.0

    def wait(self, product: torch.Tensor) -> None:
        self.act("sync", 2e3, 2e3)

    def occupy(self) -> None:
        """Work of the CPU by the clock."""
        self.busy_ns += planted.OCCUPIED_MS * 1e6

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and record it."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or name.startswith(("empty", "detach", "_unsafe_view")):
            self.busy_ns += VIEW * self.operator_ns
        elif name == "_local_scalar_dense":
            self.act("pageable", 2 * self.operator_ns, 5e3, ns=1200.0)
            self.act("stream_sync", 500.0, 1500.0)
        else:
            self.launch(name, [one for one in (*args, result) if isinstance(one, torch.Tensor)])
        return result

    def launch(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Add a kernel that reads and writes these tensors."""
        moved = sum(self.numel(one) * one.element_size() for one in tensors)
        known = {"class": "elementwise", "kernel": f"{name}_kernel", **dict.fromkeys(COUNTED, 0.0)}
        if name == "mm":
            rate, bound, efficiency, kernel, flop = PRODUCTS[tensors[-1].dtype]
            known |= {"class": "gemm", "kernel": kernel, **({flop: 2.0 * self.width**3} if flop else {})}
            ns = 2 * self.width**3 / rate * 1e9
        else:
            bound, part = ("l2", L2_PART) if moved < L2_BYTES else ("dram", DRAM_PART)
            least = moved / PEAKS[bound] * 1e9
            ns = SHORTEST_NS + least / part
            efficiency = least / ns
            known["fp32_flop"] = moved / 8
        known |= {"bound": bound, "efficiency": efficiency, "moved": moved}
        if known not in self.kernels:
            self.kernels.append(known)
        operator = self.operator_ns
        self.act("kernel", 0.6 * operator, 0.4 * operator, ns=ns, group=self.kernels.index(known))

    def numel(self, tensor: torch.Tensor) -> int:
        """Return the number of elements on the GPU."""
        return self.width**2 if tensor.shape == (SEEN, SEEN) else tensor.numel()


@contextmanager
def _watched(seen: Seen) -> Iterator[None]:
    with mock.patch.object(planted, "wait", seen.wait), mock.patch.object(planted, "occupy", seen.occupy), seen:
        yield


def step(program: str, fault: bool, precision: str, operator_ns: float) -> Seen:
    kind = planted.PROGRAMS[program]
    assert issubclass(kind, planted.Program)
    network = kind(fault, width=SEEN)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    seen = Seen(kind.width, operator_ns)
    inputs, target = torch.ones(4), torch.zeros(4)
    with _watched(seen), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        seen.part = "forward"
        outputs = network(inputs)
        seen.part = "loss"
        found = planted.loss(outputs, target)
    with _watched(seen):
        seen.part = "backward"
        found.backward()
        seen.part = "optimizer"
        optimizer.step()
    return seen


def _steps(inside: Sequence[Act]) -> list[Act]:
    """Return steps that consist of an input and these actions."""
    acts = []
    transfer = [Act("staged", 0, "transfer", 6e4, 6e3, ns=1500)] * 2
    for number in range(STEPS):
        acts.append(Act("begin", number, before=4e4))
        acts += [replace(act, step=number) for act in (*transfer, *inside)]
        acts.append(Act("end", number, before=3e4))
    return acts


def _kernels(program: Any, seen: Seen) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the kernel table and the roofline table, one row per launch configuration."""
    table = launched.configurations(program)
    known = pd.DataFrame(seen.kernels).iloc[table["grid_x"] - 1].reset_index(drop=True)
    table = table.assign(model="m", phase="train", multiprocessors=1, function=known["kernel"], **known)
    whole = pd.DataFrame({"level": ["cell"], "bound": "", "efficiency": 0.0})
    held = known[["bound", "efficiency"]].assign(level="launch")
    return table, pd.concat([whole, held], ignore_index=True).assign(model="m", phase="train")


def told(program: str, fault: bool, precision: str, operator_ns: float, folder: Path) -> SimpleNamespace:
    """Return the verdicts on a program's cell, largest gain first, and `step_ns`, the duration of an untraced step."""
    step_ns = simulated.simulate(_steps(step(program, fault, precision, operator_ns).acts)).step_ns()
    seen = step(program, fault, precision, TRACED * operator_ns)
    trace = simulated.record(simulated.simulate(_steps(seen.acts)), folder / f"{program}{fault}.sqlite")
    (traced,) = tables.read_programs(trace)
    replayed, _ = predicted_gains.remove_tracing(traced, step_ns)
    number = process_number(replayed.process)
    timed = {"step_ns": step_ns, "step_median_ns": step_ns, "process": number, "waiting_ns": 0.0}
    rows = where.where_time_goes(trace).assign(model="m", phase="train", **timed)
    rows["busy_share"] = (rows["busy_ns"] / step_ns).clip(upper=1)
    given = {"precision": precision, "graph": False, "compile": False, "channels_last": False, "workers": 0}
    cell = ("m", "train")
    kernels, roofline = _kernels(replayed, seen)
    ran_with, programs = {cell: given | {"pin_memory": False}}, {cell: {number: replayed}}
    table = verdicts.tabulate_verdicts(rows, kernels, roofline, PEAKS, {}, ran_with, known_rules.load(), None, programs)
    return SimpleNamespace(step_ns=step_ns, verdicts=table[table["level"] == "cell"].to_dict("records"))
