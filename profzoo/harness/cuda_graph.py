"""Captures a cell's step in a CUDA graph and replays it, as torch.cuda.graph documents it for whole networks."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from profzoo.errors import ConfigError, first_error_line
from profzoo.harness import batch_size, devices, tensor_trees
from profzoo.harness.ranges import Ranges
from profzoo.range_names import GRAPH

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


Step = Callable[[Any], Any]
# Types of values besides tensors in a batch; the graph keeps the values that it saw during its capture.
PLAIN = (bool, int, float, str, bytes)


class GraphBackend(Protocol):
    """Interface of a graph backend, which captures steps."""

    def aside(self, step: Step, batch: Any) -> Any:
        """Run a step on another stream than the current one, and return its result."""

    def capture(self, step: Step, batch: Any) -> tuple[Callable[[], None], Any]:
        """Capture a step without running it; returns the replay function and the object that holds its results."""


class CudaGraphs:
    """CUDA graphs of one GPU."""

    def __init__(self, device: torch.device, pins: bool) -> None:
        """pins: whether a DataLoader thread pins memory during the capture."""
        self._side = torch.cuda.Stream(device)
        # In the default mode, a CUDA call of the pinning thread would end the capture.
        self._mode = "thread_local" if pins else "global"

    def aside(self, step: Step, batch: Any) -> Any:
        """Run a step on a side stream, which the current stream waits for, and return its result."""
        current = torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side), warnings.catch_warnings():
            # A capturable optimizer warns about each step that is not captured.
            warnings.filterwarnings("ignore", message=".*capturable=True")
            made = step(batch)
        current.wait_stream(self._side)
        return made

    def capture(self, step: Step, batch: Any) -> tuple[Callable[[], None], Any]:
        """Capture a step without running it; returns the replay function and the object that holds its results."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=self._mode):
            made = step(batch)
        return graph.replay, made


class StaticInputs:
    """Static input tensors, into which each batch is copied."""

    def __init__(self, device: torch.device) -> None:
        """device: device of the static tensors; a batch's values elsewhere must not change from step to step."""
        self._device, self._held = device, None

    @property
    def held(self) -> Any:
        """Inputs with the values of the last batch."""
        return self._held

    def take(self, batch: Any) -> Any:
        """Copy a batch into the static inputs and return them.

        Raises:
            ConfigError: the batch differs from earlier batches in its structure, or in a value outside of the device.
        """
        if self._held is None:
            self._held = tensor_trees.map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)
            return self._held
        before, now = list(tensor_trees.find_tensors(self._held)), list(tensor_trees.find_tensors(batch))
        forms = [[(tuple(one.shape), one.dtype, one.device) for one in tensors] for tensors in (before, now)]
        if forms[0] != forms[1]:
            shown = [", ".join("x".join(map(str, shape)) or "1" for shape, _, _ in form) for form in forms]
            raise ConfigError(
                f"graph: true replays steps on inputs of one form, and after batches of {shown[0]} comes one of "
                f"{shown[1]}: have all of one shape, or leave graph out"
            )
        for mine, new in zip(before, now, strict=True):
            if mine.device.type == self._device.type:
                mine.copy_(new, non_blocking=True)
            elif not torch.equal(mine, new):
                raise _differing("a tensor on the CPU")
        if _plain(self._held) != _plain(batch):
            raise _differing("plain values")
        return self._held


def _plain(batch: Any) -> list[Any]:
    """Values in a batch that are not tensors, in order."""
    found: list[Any] = []
    tensor_trees.map_leaves(lambda leaf: found.append(leaf) if isinstance(leaf, PLAIN) else None, batch)
    return found


def _differing(what: str) -> ConfigError:
    return ConfigError(
        f"graph: true sees {what} of a batch once, as the step is captured, and batches differ there (such as lengths "
        "of packed sequences): leave graph out"
    )


class CapturedStep:
    """A step that first runs uncaptured a few times on a side stream, and is then captured and replayed."""

    def __init__(
        self,
        step: Step,
        cell: "CellSettings",
        network: nn.Module,
        device: torch.device,
        ranges: Ranges,
        uncaptured: int,
        graphs: GraphBackend | None = None,
    ) -> None:
        """uncaptured: number of steps to run before the capture; graphs: backend, by default CUDA graphs of the device.

        Raises:
            ConfigError: the device is no GPU.
        """
        if graphs is None and device.type != "cuda":
            why = devices.explain_cpu(cell["device"], device)
            raise ConfigError(f"graph: true captures CUDA graphs, and this is a CPU ({why}): leave graph out")
        self.step, self._left, self._network, self._ranges = step, uncaptured, network, ranges
        self._name, self._training = f"{cell['model']} {cell['phase']}", cell["phase"] == "train"
        self._graphs = graphs or CudaGraphs(device, cell["pin_memory"])
        self._inputs = StaticInputs(device)
        self._replay: Callable[[], None] | None = None
        self._made: Any = None

    def placing(self, transfer: Callable[[Any, torch.device], Any]) -> Callable[[Any, torch.device], Any]:
        """Wrap a transfer function so that every batch ends up in the static inputs."""
        return lambda batch, device: self._inputs.take(transfer(batch, device))

    def __call__(self, batch: Any) -> Any:
        """Run or replay the step on a batch in the static inputs, and return its result.

        Raises:
            ConfigError: the step cannot be captured.
        """
        if self._left:
            self._left -= 1
            held = dict(_held(self._network))
            made = self._graphs.aside(self.step, batch)
            self._check_state(held)
            return made
        if self._replay is None:
            self._replay, self._made = self._captured(batch)
        if not self._training:
            with self._ranges("forward"):
                self._replay()
            return self._made
        with self._ranges(GRAPH):
            self._replay()
            # The next replay overwrites it.
            return self._made.clone()

    def again(self) -> None:
        """Capture the step once more without running it, if it was captured."""
        if self._replay is not None:
            self._graphs.capture(self.step, self._inputs.held)

    def _captured(self, batch: Any) -> tuple[Callable[[], None], Any]:
        try:
            return self._graphs.capture(self.step, batch)
        except RuntimeError as error:
            first: BaseException = error
            # Ending the failed capture raises another error; its innermost context is the cause.
            while first.__context__:
                first = first.__context__
            if batch_size.is_out_of_memory(first):
                raise
            raise ConfigError(
                f"{self._name} cannot be captured in a CUDA graph: {first_error_line(first)}; leave graph out, or "
                "have the step neither wait for the GPU (.item(), copies to the host) nor depend on its results"
            ) from error

    def _check_state(self, before: Mapping[str, tuple[Tensor, ...]]) -> None:
        """Check that no module carries a tensor from step to step; a graph would always reuse the captured one."""
        for name, tensors in _held(self._network):
            old = before.get(name)
            # Before the first step no attribute held a tensor.
            if old and any(one is not other for one, other in zip(old, tensors, strict=False)):
                raise ConfigError(
                    f"graph: true cannot capture {self._name}: its network keeps {name} from step to step, which a "
                    "replay would not; leave graph out"
                )


def _held(network: nn.Module) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Tensors that modules hold as attributes, besides parameters and buffers, by attribute name."""
    for path, module in network.named_modules():
        for name, value in vars(module).items():
            tensors = value if isinstance(value, tuple | list) else (value,)
            if not name.startswith("_") and tensors and all(isinstance(one, Tensor) for one in tensors):
                yield f"{path}.{name}".lstrip("."), tuple(tensors)
