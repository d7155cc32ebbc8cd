"""Captures a cell's step in a CUDA graph and replays it, as torch.cuda.graph documents it for whole networks."""

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from profzoo.errors import ConfigError, first_error_line
from profzoo.harness import devices, inspection
from profzoo.harness.ranges import Ranges
from profzoo.harness.variants import batch_size
from profzoo.io import chrome_trace
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
            self._held = inspection.map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)
            return self._held
        before, now = list(inspection.find_tensors(self._held)), list(inspection.find_tensors(batch))
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
    inspection.map_leaves(lambda leaf: found.append(leaf) if isinstance(leaf, PLAIN) else None, batch)
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


# Adds the capture of a step to the trace of its CUDA graph replays, which do not show what launched a kernel.
#
# The step is captured a second time after the window, under a separate profiler. The first capture cannot be profiled,
# because timed steps follow it and no profiler may run during them.

Event = Mapping[str, Any]
# Keys that link events of a trace; each key has its own numbering.
LINKS = ("External id", "correlation")
# Category of the two flow events that link an operator to its backward operator; the two share one ID.
BACKWARD = "fwdbwd"
# GPU work during the second capture, such as seeding the graph's random numbers, does not belong to the window.
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
# Gap between the capture and the window in the joined trace, in microseconds.
APART = 1000


def attach_capture(trace: Path, capture: Callable[[], None], shapes: bool) -> None:
    """Capture a step again, and add the events of this capture to a trace of its replays.

    trace: path of a Chrome trace, gzipped or not. If the second capture fails, for example for lack of memory, the
    trace stays unchanged and a warning is printed.
    """
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    try:
        with profile(activities=activities, record_shapes=shapes, acc_events=True) as profiler:
            capture()
    except RuntimeError as error:
        print(
            f"profzoo: launches of the CUDA graph cannot be assigned to layers: {first_error_line(error)}",
            file=sys.stderr,
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.json"
        profiler.export_chrome_trace(str(path))
        captured = chrome_trace.read_events(path)
    chrome_trace.rewrite_events(trace, lambda events: join_capture(events, captured))


def join_capture(window: Sequence[Event], capture: Sequence[Event]) -> list[Event]:
    """Events of the window and the capture, with times and correlation ids of the capture made consistent."""
    host = [event for event in capture if event.get("cat") not in ON_GPU]
    done = [event for event in host if event.get("ph") == "X" or event.get("cat") == BACKWARD]
    if not done:
        return list(window)
    begins = min((event["ts"] for event in window if event.get("ph") == "X"), default=0)
    shift = begins - APART - max(event["ts"] + event.get("dur", 0) for event in done)
    beyond = {link: 1 + max((event.get("args", {}).get(link, 0) for event in window), default=0) for link in LINKS}
    pairs = 1 + max((event["id"] for event in window if event.get("cat") == BACKWARD), default=0)
    moved = []
    for event in done:
        links = {link: event["args"][link] + more for link, more in beyond.items() if link in event.get("args", {})}
        own: dict[str, Any] = {"args": {**event["args"], **links}} if links else {}
        if event.get("cat") == BACKWARD:
            own["id"] = event["id"] + pairs
        moved.append({**event, "ts": event["ts"] + shift, **own})
    return [*moved, *window]
