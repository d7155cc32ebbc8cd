"""harness/modules: which modules get ranges, and that nothing else changes by it."""

import contextlib
import copy
from types import SimpleNamespace
from typing import Any

import nvtx
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel

from profzoo.harness import compiled_kernels, ranges
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from tests import owned

X = torch.ones(1, 4)


def owned_by(network: nn.Module, *inputs: Any, prefix: str = "") -> dict[str, set[str]]:
    """Of each module, once it is marked, the operators of a call."""
    ranges.mark_modules(network, ranges.torch_range, prefix)
    return called(network, *inputs)


def called(network: Any, *inputs: Any) -> dict[str, set[str]]:
    """Of each module that is marked, the operators of a call."""
    table = owners.tabulate_operators(torch_trace.make_trace(owned.of_forward(network, *inputs)))
    return {str(name): set(rows["operator"]) for name, rows in table.groupby("module", observed=True)}


class Opened:
    """Notes which ranges are opened and closed."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, name: str, inputs: tuple[Any, ...]) -> Any:
        self.said.append(name)
        return lambda: self.said.append(f"/{name}")


def test_paths_of_a_network_and_of_others() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"a": nn.ReLU()})["a"])
    assert {"0", "1"} <= set(owned_by(network, X))
    others = nn.ModuleDict({"judge": nn.Sequential(nn.Linear(4, 4))})
    ranges.mark_modules(others, ranges.torch_range, "(others)")
    assert set(called(others["judge"], X)) == {"(others).judge.0"}


@pytest.mark.parametrize("wrapped", ["network", "part"])
def test_modules_in_replicas_go_by_their_own_names(wrapped: str) -> None:
    parallel = nn.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    network = parallel if wrapped == "network" else nn.Sequential(parallel)
    opened = Opened()
    ranges.mark_modules(network, opened)
    # As on several GPUs: a copy for each, which shares what it does not replicate.
    replica = parallel.module._replicate_for_data_parallel()
    for one in (parallel.module, replica):
        opened.said.clear()
        one(X)
        before = "" if wrapped == "network" else "0."
        assert [said for said in opened.said if "/" not in said][1:] == [
            f"module:{before}0:Linear", f"module:{before}1:ReLU"
        ]  # fmt: skip
    assert issubclass(DistributedDataParallel, compiled_kernels.REPLICATED)


def test_a_wrapper_that_checkpoints_is_what_it_wraps() -> None:
    network = nn.Sequential(checkpoint_wrapper(nn.Linear(4, 4)), nn.ReLU())
    ranges.mark_modules(network, ranges.torch_range)

    def train(flow: Tensor) -> None:
        network(flow).sum().backward()

    table = owners.tabulate_operators(torch_trace.make_trace(owned.of_forward(train, X)))
    found = set(zip(table["module"], table["direction"], strict=True))
    assert {("0", "forward"), ("0", "backward"), ("0", "recompute"), ("1", "forward")} <= found
    assert not [name for name in table["module"] if "wrapped" in name]


def test_a_launch_of_no_operator_is_of_the_module_that_it_was_made_in() -> None:
    network = nn.Sequential(nn.Linear(4, 4))
    ranges.mark_modules(network, ranges.torch_range)
    events = owned.of_forward(network, X)
    (mark,) = [event for event in events if event["name"].endswith(":0:Linear")]
    ids = {"External id": mark["args"]["External id"], "correlation": 9}
    call = {"cat": "cuda_driver", "name": "cuLaunchKernel", "tid": mark["tid"], "ts": mark["ts"], "dur": 1, "args": ids}
    kernel = {**call, "cat": "kernel", "name": "of_my_own"}
    (row,) = owners.tabulate_launches(torch_trace.make_trace([*events, call, kernel])).to_dict("records")
    assert (row["module"], row["type"], row["operator"], row["caller"]) == ("0", "Linear", "", "")


def test_ranges_close_where_a_forward_raises() -> None:
    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.after = nn.Bilinear(1, 1, 1), nn.Identity()

        def forward(self, flow: Tensor) -> Tensor:
            with contextlib.suppress(TypeError):
                self.inner(flow)
            return self.after(flow)

    opened = Opened()
    network = Catches()
    ranges.mark_modules(network, opened)
    network(X)
    names = ["module:(root):Catches", "module:inner:Bilinear", "module:after:Identity"]
    assert opened.said == [names[0], names[1], f"/{names[1]}", names[2], f"/{names[2]}", f"/{names[0]}"]


def test_the_fused_path_of_encoder_layers_stays_in_inference() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    network = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 8)).eval()
    text = torch.ones(1, 3, 8)
    with torch.inference_mode():
        before = owned.of_forward(network, text)
        found = owned_by(network, text)
        after = owned.of_forward(network, text)
    assert "aten::_transformer_encoder_layer_fwd" in found["0.layers.0"] & found["0.layers.1"]
    assert "aten::addmm" in found["1"]
    names = [[event["name"] for event in events if event.get("cat") == "cpu_op"] for events in (before, after)]
    assert [name for name in names[1] if not name.startswith("profzoo:")] == names[0]


def test_a_copy_of_a_marked_network_computes_with_its_own_weights() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    ranges.mark_modules(layer, ranges.torch_range)
    twin = copy.deepcopy(layer)
    with torch.inference_mode():
        for parameter in twin.parameters():
            parameter.zero_()
        text = torch.randn(1, 3, 8)
        assert not twin(text).any() and layer(text).any()


class Part(nn.Module):
    """What is compiled; torch does not compile a bare nn.Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, flow: Tensor) -> Tensor:
        return self.linear(flow).relu()


class Compiled(nn.Module):
    """A part that is compiled, in a network that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.rest = Part(), nn.Linear(4, 4)

    def forward(self, flow: Tensor) -> Tensor:
        return self.rest(self.part(flow)).sigmoid()


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_compiled_has_one_range(whole: bool) -> None:
    """As torch.compile leaves a module that compiles itself."""
    network, opened = Compiled(), Opened()
    part = network if whole else network.part
    part._compiled_call_impl = part._call_impl
    ranges.mark_modules(network, opened)
    network(X)
    parts = ["module:(root):Compiled", "module:part.(compiled):Part", "module:rest:Linear"]
    assert [said for said in opened.said if "/" not in said] == (["module:(compiled):Compiled"] if whole else parts)


@pytest.mark.slow
def test_a_network_that_is_compiled_as_a_whole_is_one_owner() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    network = Compiled()
    network.compile(backend="aot_eager", fullgraph=True)
    owned_by(network, X)
    found = called(network, X)
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1
    assert {"aten::addmm", "aten::relu", "aten::sigmoid"} <= found["(compiled)"] and "rest" not in found


@pytest.mark.slow
def test_backward_of_what_is_compiled_is_its_own_and_its_graph_whole() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    network = Compiled()
    network.part.compile(backend="aot_eager", fullgraph=True)
    ranges.mark_modules(network, ranges.torch_range)

    def train(flow: Tensor) -> None:
        network(flow).sum().backward()

    train(X)
    table = owners.tabulate_operators(torch_trace.make_trace(owned.of_forward(train, X)))
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1
    forward = table[table["direction"] == "forward"].groupby("module", observed=True)["operator"].agg(set)
    assert {"aten::addmm", "aten::relu"} <= forward["part.(compiled)"]
    assert "aten::addmm" in forward["rest"] and "aten::sigmoid" in forward["(root)"]
    backward = table[table["direction"] == "backward"]
    assert {"part.(compiled)", "rest", "(root)"} <= set(backward["module"])
    assert "CompiledFunctionBackward" in set(backward.loc[backward["module"] == "part.(compiled)", "caller"])


def test_other_ranges_go_to_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    domain = SimpleNamespace(get_event_attributes=lambda message: message, push_range=said.append)
    domain.pop_range = lambda: said.append("pop")
    monkeypatch.setattr(nvtx, "get_domain", lambda name: domain)
    network = nn.Sequential(nn.ReLU())
    ranges.mark_modules(network, ranges.nvtx_range)
    network(X)
    assert said == ["module:(root):Sequential", "module:0:ReLU", "pop", "pop"]


@pytest.mark.parametrize(
    "name", ['a"b', "back\\slash", "new\nline", "\x01", "Größe", "漢字 🚀", "50%", "%41", '", "pid": 1', "plain"]
)
def test_modules_of_any_name_own_what_runs_in_them(name: str) -> None:
    """As torch.profiler itself writes them: it makes slashes of backslashes, and `unknown` of what is not ASCII."""
    network = nn.Sequential(nn.ModuleDict({name: nn.Linear(3, 4)}))
    network.forward = lambda flow: network[0][name](flow)
    ranges.mark_modules(network, ranges.torch_range)
    table = owners.tabulate_operators(torch_trace.make_trace(owned.of_forward(network, torch.ones(2, 3))))
    assert set(table.loc[table["operator"] == "aten::addmm", "module"]) == {f"0.{name}"}
