"""Runs the steps of a cell: warm-up, then the window, each step in named ranges."""

import math
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from profzoo.cell.process_count import batch_count
from profzoo.errors import ConfigError, first_error_line
from profzoo.harness import devices, distributed, interface
from profzoo.harness.observers import first_steps, recorders, warmup_observers
from profzoo.harness.observers.recorders import Recorder
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, pipeline, training_step
from profzoo.harness.step.batches import iterate_batches, move_to_device
from profzoo.harness.variants import cuda_graph, eight_bit_layers
from profzoo.range_names import STEP, WINDOW

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import PaddedRows, StepNumbers


# Determines the length of a window: the configured steps, and more if it must last longer.

# Number of epochs for a data set that is repeated until the steps end.
ENDLESS = 10**9


def extend_epochs(cell: "CellSettings", recorder: Recorder) -> "CellSettings":
    """Cell settings with as many epochs as its window may need."""
    return {**cell, "epochs": ENDLESS} if recorder.least_s else cell


def step_indices(cell: "CellSettings", recorder: Recorder) -> Iterator[int]:
    """Yield step numbers, including those by which the window is extended."""
    index = cell["steps"]
    yield from range(index)
    while more := _more(cell, recorder):
        yield from range(index, index + more)
        index += more


def _more(cell: "CellSettings", recorder: Recorder) -> int:
    """Number of further steps that the window needs, estimated from past steps; equal in all processes."""
    if not recorder.least_s:
        return 0
    # Wait for the device: the host may be many steps ahead.
    recorder.clock.wait()
    lasted_s = max(recorder.clock.now() - recorder.window_began_ns, 1) / 1e9
    own = math.ceil((recorder.least_s - lasted_s) / lasted_s * recorder.steps) if lasted_s < recorder.least_s else 0
    return max(int(each["steps"]) for each in distributed.gather_facts(cell, {"steps": own}))


class NotFiniteError(ArithmeticError):
    """A loss or an output is NaN or infinite."""


@dataclass(frozen=True)
class StepParts:
    """Functions and objects that every step of a cell uses.

    transfer: (batch, device) -> batch on the device. step: (batch on the device) -> loss or outputs. plain: the same
    function as step, never captured in a graph. trainer: the trainer of a training cell. ranges: opens named ranges.
    """

    transfer: Callable[[Any, torch.device], Any]
    step: Callable[[Any], Any]
    plain: Callable[[Any], Any]
    trainer: training_step.Trainer | None
    ranges: Ranges


@dataclass(frozen=True)
class RunOutcome:
    """Results of a run: parameter count, last loss (None in inference), and last loss before the window.

    The last loss and outputs are of the configured steps. Those by which a window is extended may be more on one side
    of a comparison. outputs: some values of the last output; only in inference. numbers: of the first steps. repeated:
    the parts of the step, with which more steps can be run as long as the process group exists. seen: what was looked
    at in warm-up steps, by the names of the facts. padding: of early batches.
    """

    parameters: int
    loss: float | None
    baseline_loss: float | None
    outputs: Sequence[float]
    numbers: "StepNumbers"
    repeated: StepParts | None
    seen: Mapping[str, Any] = field(default_factory=dict)
    padding: "Sequence[PaddedRows]" = ()


def choose_cell_device(cell: "CellSettings") -> torch.device:
    """Device that the cell runs on; ConfigError if a GPU is requested but torch sees none, or too few."""
    number = distributed.read_local_rank(cell)
    device = devices.choose_device(cell["device"], number)
    if device.type == "cuda" and number >= torch.cuda.device_count():
        raise ConfigError(f"gpus = {cell['gpus']}, but torch sees {torch.cuda.device_count()}: lower gpus")
    return device


def make_network(
    cell: "CellSettings", model: interface.ModelFunctions, device: torch.device, weights: Path | None
) -> nn.Module:
    """Cell's network on its device, with weights loaded if given, in the cell's memory format."""
    return set_up_network(build_network(cell, model, weights), cell, device)


def build_network(cell: "CellSettings", model: interface.ModelFunctions, weights: Path | None) -> nn.Module:
    """Build the cell's network on the CPU, with weights loaded if given."""
    torch.manual_seed(cell["seed"])
    network = model.build(SimpleNamespace(**cell["shape"]))
    if weights:
        try:
            network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        except (OSError, pickle.UnpicklingError, EOFError) as error:
            raise ConfigError(f"--load {weights}: no weights that torch can read: {first_error_line(error)}") from error
        except RuntimeError as error:
            first = str(error).splitlines()[-1].strip()
            raise ConfigError(
                f"{weights} does not fit {cell['model']} in {cell['phase']}: {first} (give both phases the same shapes)"
            ) from error
    return network


def set_up_network(network: nn.Module, cell: "CellSettings", device: torch.device) -> nn.Module:
    """Move a built network to the device, in the cell's memory format and with its kind of linear layers."""
    network = training_step.place_network(network, cell, device)
    if cell["precision"] in eight_bit_layers.DTYPES:
        network = eight_bit_layers.convert_linear_layers(network, cell, device)
    network.train(cell["phase"] == "train")
    prepare_network(network)
    return network


def prepare_network(network: nn.Module) -> None:
    """Call the `prepare` methods of modules, which a model needs after weights were moved, cast or loaded.

    A method of this name that needs arguments is something else, of a library for example.
    """
    for module in network.modules():
        if callable(hook := getattr(module, "prepare", None)) and not interface.needs_arguments(hook):
            hook()


def run_steps(
    cell: "CellSettings", network: nn.Module, device: torch.device, recorder: Recorder, timer: Recorder | None = None
) -> RunOutcome:
    """Run all steps; the recorder observes the window, and a timer the baseline's steps before it.

    Raises:
        NotFiniteError: a loss or the last output was not finite.
        ConfigError: the data had fewer batches than the cell has steps.
    """
    model = interface.load_functions(cell["module"])
    ranges = Ranges()
    watching: Recorder | None = None
    before = cell["warmup"] + (cell["profiler"]["baseline"] if timer else 0)
    begins = {cell["warmup"]: timer or recorder} | {before: recorder}
    if not timer:
        # torch ranges are on from the first step, except where a baseline is timed first.
        ranges.watch(recorder.torch_ranges, recorder.torch_modules)
    source = iter(iterate_batches(extend_epochs(cell, recorder), model))
    first, padding, loading = first_steps.FirstSteps(cell, network), batches.BatchPadding(), batches.BatchLoading()
    repeated = make_step(cell, model, network, device, ranges)
    if repeated.trainer:
        repeated.trainer.first_steps = first
    # Inference keeps only the last output: more outputs would count as memory of the model.
    results: deque[Any] = deque(maxlen=None if cell["phase"] == "train" else 1)
    observers = warmup_observers.WarmupObservers(cell, device, ranges, sys._getframe().f_code)
    for index in step_indices(cell, recorder):
        if index in begins:
            watching = _begin_window(begins[index], watching, ranges, cell)
        with observers.during(index), ranges(STEP):
            with ranges("data"):
                batch = next(source, None) if watching else loading.take(source)
            if batch is None:
                raise ConfigError(f"the data ended after {index} of {cell['steps']} steps: raise samples or epochs")
            with ranges("transfer"):
                batch = repeated.transfer(batch, device)
            result = repeated.step(batch)
            if index < cell["steps"] or repeated.trainer:
                results.append(result)
        if watching:
            watching.step(cell["batch"] * batch_count(cell))
        else:
            first.note(batch, result)
            padding.note(batch)
    recorder.stop()
    ranges.close()
    numbers = first.read(losses := _finite(results, cell), results[-1])
    sample = [] if cell["phase"] == "train" else first_steps.sample_outputs(results[-1])
    loss, last = ((losses[:end] or losses)[-1] for end in (cell["steps"], before))
    counted, seen = count_parameters(network, cell), {**observers.facts(), **loading.read()}
    return RunOutcome(counted, loss, last, sample, numbers, repeated, seen, padding.read())


def count_parameters(network: nn.Module, cell: "CellSettings") -> int:
    """Number of a network's weights, in all stages of a pipeline; those whose shapes are not known yet do not count."""
    own = {name: one.numel() for name, one in network.named_parameters() if not is_lazy(one)}
    return sum(distributed.join_stages(cell, own).values())


def _begin_window(recorder: Recorder, before: Recorder | None, ranges: Ranges, cell: "CellSettings") -> Recorder:
    """End the window of the recorder before, if there is one, and begin that of the next one, which is returned."""
    if before:
        before.stop()
        ranges.close()
    ranges.watch(recorder.torch_ranges, recorder.torch_modules)
    distributed.wait_for_all(cell)
    recorder.start(lambda: distributed.meet_all(cell))
    ranges.open(WINDOW)
    return recorder


def rehearse(cell: "CellSettings", model: interface.ModelFunctions, device: torch.device) -> None:
    """Run some steps outside of any window, to see whether they fit into memory.

    The second step also needs memory for the optimizer's state, and a later step may be captured. Errors are raised.
    """
    network = make_network(cell, model, device, None)
    repeated = make_step(cell, model, network, device, Ranges())
    batch = repeated.transfer(next(iter(iterate_batches(cell, model))), device)
    for _ in range(cell["warmup"] if cell.get("graph") else 2):
        repeated.step(batch)
    recorders.timer_of(device).wait()


def make_step(
    cell: "CellSettings", model: interface.ModelFunctions, network: nn.Module, device: torch.device, ranges: Ranges
) -> StepParts:
    """Make the functions that each step repeats, for a network on the device."""
    training_step.set_arithmetic(cell)
    blocks = pipeline.find_blocks(network, cell, model)
    if cell.get("checkpoint"):
        training_step.insert_checkpoints(network, cell["model"], blocks)
    if cell["compile"]:
        for part in blocks or model.compiled(network):
            part.compile(mode=None if cell["compile"] is True else cell["compile"])
    ranges.mark(network)
    trainer = training_step.Trainer(cell, model, network, device, ranges) if cell["phase"] == "train" else None
    plain = _begun(cell, _training(model, trainer) if trainer else _inference(cell, model, network, device, ranges))
    transfer = model.transfer or _transfer(cell)
    if cell.get("accumulate"):
        transfer = _each(transfer)
    if not cell.get("graph"):
        return StepParts(transfer, plain, plain, trainer, ranges)
    # The first replay is part of the warm-up.
    whole = cuda_graph.CapturedStep(plain, cell, network, device, ranges, cell["warmup"] - 1)
    return StepParts(whole.placing(transfer), whole, plain, trainer, ranges)


def _training(model: interface.ModelFunctions, trainer: training_step.Trainer) -> Callable[[Any], Any]:
    """Function from a batch to the loss of one training step."""
    step = model.training_step or training_step.run_training_step

    def stepped(batch: Any) -> Any:
        loss = step(trainer, batch)
        trainer.check(loss)
        return loss.detach()

    return stepped


def _inference(
    cell: "CellSettings", model: interface.ModelFunctions, network: nn.Module, device: torch.device, ranges: Ranges
) -> Callable[[Any], Any]:
    """Function from a batch to the outputs."""
    autocast = training_step.make_autocast(cell, device)
    plain = model.infer is interface.run_forward

    def inference(batch: Any) -> Any:
        inputs, _ = batches.split_batch(batch, cell, model)
        with torch.inference_mode(), autocast(), ranges("forward"), ranges.generating():
            return batches.call_network(network, batch, inputs) if plain else model.infer(network, inputs)

    return inference


def _begun(cell: "CellSettings", step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a step so that torch.compile is told where it begins, if it keeps CUDA graphs per step."""
    if cell["compile"] != "reduce-overhead":
        return step

    def begun(batch: Any) -> Any:
        # Without this mark, the next call of a compiled part may count as a new step and overwrite earlier outputs.
        torch.compiler.cudagraph_mark_step_begin()
        return step(batch)

    return begun


def _finite(results: deque[Any], cell: "CellSettings") -> Sequence[float | None]:
    """Check losses after the window, so that no step waits for them; None in inference."""
    if cell["phase"] == "train":
        losses = torch.stack([loss.reshape(()) for loss in results]).float().tolist()
        if distributed.is_pipeline(cell):
            # Only the last stage knows them.
            losses = distributed.gather_facts(cell, {"losses": losses})[-1]["losses"]
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise NotFiniteError(f"the loss is {loss} at step {index} of {len(losses)}")
        return losses
    if not first_steps.is_finite(results[-1]):
        raise NotFiniteError("the output of the last step holds NaN or infinity")
    return [None]


def _each(transfer: Callable[[Any, torch.device], Any]) -> Callable[[Any, torch.device], Any]:
    """Function that transfers each batch of a list."""
    return lambda several, device: [transfer(one, device) for one in several]


def _transfer(cell: "CellSettings") -> Any:
    memory_format = training_step.choose_memory_format(cell)
    return lambda batch, device: move_to_device(batch, device, memory_format)
