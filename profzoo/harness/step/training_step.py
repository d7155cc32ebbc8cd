"""Provides what a training step needs: optimizers, ranges, autocast and torch's global arithmetic settings."""

import contextlib
import functools
import inspect
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.checkpoint import checkpoint

from profzoo.errors import ConfigError, first_error_line
from profzoo.harness import distributed, interface
from profzoo.harness.observers.first_steps import FirstSteps, find_weights
from profzoo.harness.step import batches
from profzoo.harness.step.pipeline import Pipeline
from profzoo.range_names import OTHERS

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


# Recreates a model's optimizers with the implementation that the cell requests, capturable in a CUDA graph.

# Keyword arguments of torch's optimizers for each implementation; `auto` and `8bit` pass none.
IMPLEMENTATIONS: Mapping[str, Mapping[str, bool]] = {
    "auto": {},
    "for_loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
    "8bit": {},
}
# Classes of bitsandbytes that compute what torch's do, with their states in 8 bits.
EIGHT_BIT = {torch.optim.Adam: "Adam8bit", torch.optim.AdamW: "AdamW8bit"}
# Options of torch's classes, other than how they are implemented, that those of bitsandbytes have not.
NOT_EIGHT_BIT = ("amsgrad", "maximize", "differentiable")


def make_optimizers(
    network: nn.Module, optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
) -> list[torch.optim.Optimizer]:
    """Make optimizers for all parameters: the model's own, or Adam with SparseAdam for sparse embeddings.

    Adam takes no sparse gradients: embeddings with `sparse=True` get torch's SparseAdam, at the same learning rate.
    """
    sparse = _sparse_weights(network)
    if optimizer is not interface.make_adam or not sparse:
        return [optimizer(network.parameters())]
    known = set(sparse)
    dense = [parameter for parameter in network.parameters() if parameter not in known]
    return [*([optimizer(dense)] if dense else []), torch.optim.SparseAdam(sparse, lr=interface.RATE)]


def make_all_optimizers(
    model: interface.ModelFunctions, network: nn.Module, others: nn.Module
) -> Sequence[torch.optim.Optimizer]:
    """The optimizers that a model's file defines for its networks, or those of the network alone."""
    return model.optimizers(network, others) if model.optimizers else make_optimizers(network, model.optimizer)


def _sparse_weights(network: nn.Module) -> list[torch.Tensor]:
    kinds = nn.Embedding | nn.EmbeddingBag
    return list({part.weight: None for part in network.modules() if isinstance(part, kinds) and part.sparse})


def clip_gradients(weights: Sequence[torch.Tensor], largest: float, pipeline: Pipeline | None = None) -> None:
    """Scale the gradients of weights down so that the norm of all together is at most `largest`, without a wait.

    The norm of a gradient that is split over processes is that of the whole, and in a pipeline all stages count.
    """
    made = [one for one in weights if one.grad is not None]
    kinds = [[one for one in made if distributed.is_split(one) == split] for split in (False, True)]
    # One kernel cannot take both kinds. A stage without gradients waits for the norm all the same, as all stages do.
    kinds = [kind for kind in kinds if kind] or [made]
    measure = pipeline.measure_norm if pipeline else measure_norm
    norms: list[Any] = [measure(kind) for kind in kinds]
    norms = [one.full_tensor() if distributed.is_split(one) else one for one in norms]
    for kind in kinds:
        total = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
        nn.utils.clip_grads_with_norm_(kind, largest, total)


def measure_norm(weights: Iterable[torch.Tensor]) -> torch.Tensor:
    """Euclidean norm of the gradients of weights together."""
    return nn.utils.get_total_norm([one.grad for one in weights if one.grad is not None])


@torch.no_grad()
def average_weights(
    averages: Mapping[torch.Tensor, torch.Tensor], weights: Iterable[torch.Tensor], decay: float
) -> None:
    """Move the averages of those of the weights that have one."""
    own = [one for one in weights if one in averages]
    for split in (False, True):
        # One kernel cannot take both kinds.
        if kind := [one for one in own if distributed.is_split(one) == split]:
            torch._foreach_lerp_([averages[one] for one in kind], kind, 1 - decay)


def choose_implementation(optimizer: torch.optim.Optimizer, cell: "CellSettings") -> torch.optim.Optimizer:
    """Recreate a fresh optimizer with the cell's implementation; capturable if its step is captured.

    Raises:
        ConfigError: the optimizer has no such implementation, or the package with it is missing.
    """
    asked = cell.get("optimizer", "auto")
    if asked == "8bit":
        return _keep_in_eight_bits(optimizer, cell["model"])
    options = dict(IMPLEMENTATIONS[asked])
    # Optimizers without this option, such as SGD, keep no state on the CPU.
    if cell.get("graph") and "capturable" in optimizer.defaults:
        options["capturable"] = True
    if not options:
        return optimizer
    kind, refused = type(optimizer), f"optimizer = '{asked}': {type(optimizer).__name__} of {cell['model']}"
    if any(value and name not in optimizer.defaults for name, value in options.items()):
        raise ConfigError(f"{refused} has no such implementation: set optimizer to auto, or another that it has")
    options = {name: value for name, value in options.items() if name in optimizer.defaults}
    taken = inspect.signature(kind).parameters
    given = {name: value for name, value in optimizer.defaults.items() if name in taken}
    try:
        return kind([{**group, **options} for group in optimizer.param_groups], **{**given, **options})
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"{refused} cannot be made so: {first_error_line(error)}; set optimizer to auto") from error


def explain_no_eight_bits(optimizer: torch.optim.Optimizer) -> str:
    """Say why the states of an optimizer cannot be kept in 8 bits, and what else to do; empty if they can."""
    kind, groups = type(optimizer), optimizer.param_groups
    if kind not in EIGHT_BIT:
        return "has no form in 8 bits, as Adam and AdamW have:"
    if option := next((name for name in NOT_EIGHT_BIT if any(group[name] for group in groups)), None):
        return f"has {option}, which has no form in 8 bits:"
    if kind is torch.optim.Adam and any(group["weight_decay"] for group in groups):
        return "adds its weight_decay to gradients, and would take it from weights in 8 bits: use AdamW, or"
    return ""


def _keep_in_eight_bits(optimizer: torch.optim.Optimizer, model: str) -> torch.optim.Optimizer:
    """Recreate a fresh optimizer as that of bitsandbytes, which keeps its states in 8 bits."""
    kind, groups = type(optimizer), optimizer.param_groups
    if why := explain_no_eight_bits(optimizer):
        raise ConfigError(f"optimizer = '8bit': {kind.__name__} of {model} {why} set optimizer to auto")
    made: torch.optim.Optimizer = getattr(_import_bitsandbytes().optim, EIGHT_BIT[kind])(
        [{name: group[name] for name in ("params", "lr", "betas", "eps", "weight_decay")} for group in groups]
    )
    return made


def _import_bitsandbytes() -> Any:
    # Its import would download products in 4 bits with this package, and warns where that is missing.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    before = {name: module for name, module in sys.modules.items() if name == "kernels"}
    sys.modules["kernels"] = None  # type: ignore[assignment]
    try:
        return interface.import_extra("bitsandbytes", "optimizer = '8bit'")
    finally:
        del sys.modules["kernels"]
        sys.modules.update(before)


# Inserts activation checkpointing: activations inside module sequences are recomputed in the backward pass.
#
# The sequences are the outermost `nn.Sequential` and `nn.ModuleList` of the network that hold several modules. Each
# module of a list is checkpointed by itself. The n modules of a Sequential are checkpointed in about sqrt(n) groups,
# and only the input of each group is kept. The inputs then take about as much memory as the activations of one group
# (Chen et al. 2016, arXiv:1604.06174). In a network without such sequences, each direct child with children is
# checkpointed.


def insert_checkpoints(network: nn.Module, model: str, blocks: Sequence[nn.Module] = ()) -> None:
    """Checkpoint the blocks, or the network's sequences, from now on; model: the model's name, for error messages.

    Raises:
        ConfigError: the network has no such sequences.
    """
    found = list(blocks) or list(_sequences(network, set())) or list(_blocks(network))
    for module in found:
        if isinstance(module, nn.Sequential):
            module.forward = functools.partial(_in_runs, group_modules(list(module)))  # type: ignore[method-assign]
        else:
            # Checkpoint the forward only: around `__call__`, the module's hooks would run twice.
            module.forward = functools.partial(_again, module.forward)
    if not found:
        raise ConfigError(
            f"checkpoint: true finds nothing in {model}, whose network holds no nn.Sequential or nn.ModuleList of "
            "several modules, nor modules that consist of others: leave it out"
        )


def group_modules(modules: Sequence[nn.Module]) -> list[nn.Sequential]:
    """Group consecutive modules into about sqrt(n) Sequentials.

    No group begins with an in-place module, as that module would overwrite the kept input of the group.

    >>> [len(run) for run in group_modules([nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU(inplace=True), nn.Linear(1, 1)])]
    [3, 1]
    """
    longest = math.ceil(len(modules) / math.ceil(math.sqrt(len(modules))))
    parts: list[list[nn.Module]] = []
    for module in modules:
        if not parts or (len(parts[-1]) >= longest and not _in_place(module)):
            parts.append([])
        parts[-1].append(module)
    return [nn.Sequential(*part) for part in parts]


def _sequences(module: nn.Module, seen: set[nn.Module]) -> Iterator[nn.Module]:
    """Yield the modules to checkpoint: the outermost Sequentials and the modules of lists, each module once."""
    if module in seen:
        return
    seen.add(module)
    # A subclass with its own forward may call its modules in another order.
    if type(module).forward is nn.Sequential.forward and len(module) > 1:  # type: ignore[arg-type]
        yield module
        return
    for child in module.children():
        listed = isinstance(module, nn.ModuleList) and len(module) > 1 and not isinstance(child, nn.ModuleList)
        if not listed or isinstance(child, nn.ModuleDict):
            yield from _sequences(child, seen)
        elif child not in seen and not _in_place(child):
            seen.add(child)
            yield child


def _blocks(network: nn.Module) -> Iterator[nn.Module]:
    for child in dict.fromkeys(network.children()):
        called = not isinstance(child, nn.ModuleList | nn.ModuleDict)
        if called and any(child.children()) and not _in_place(child):
            yield child


def _in_place(module: nn.Module) -> bool:
    """Whether the module's first operation modifies its input in place."""
    first = next((part for part in module.modules() if not any(part.children())), module)
    return bool(getattr(first, "inplace", False))


def _in_runs(parts: Sequence[nn.Sequential], inputs: Any) -> Any:
    for part in parts:
        inputs = _again(part, inputs)
    return inputs


def _again(function: Any, *inputs: Any, **named: Any) -> Any:
    if not torch.compiler.is_compiling() and torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE):
        # Fake tensors draw nothing, so that the state of the generator need not come again.
        named["preserve_rng_state"] = False
    return checkpoint(function, *inputs, use_reentrant=False, **named)


# Around products in 8 bits, everything else is computed as with bf16.
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16, "int8": torch.bfloat16}


# Settings that `Trainer.update` applies.
UPDATED = ("clip", "ema")


class Trainer:
    """Objects of a training step: `network`, `others`, their `optimizers`, and the ranges around its parts.

    others: networks that only training needs, such as a discriminator.
    """

    def __init__(
        self,
        cell: "CellSettings",
        model: interface.ModelFunctions,
        network: nn.Module,
        device: torch.device,
        ranges: Any,
    ) -> None:
        """network: on the device already."""
        self.model, self.cell, self._ranges = model, cell, ranges
        distributed.check_shareable(cell, model)
        if cell.get("accumulate") and model.training_step:
            raise ConfigError(
                f"accumulate: {cell['accumulate']}: {cell['model']} has a training step of its own, which says itself "
                "when it updates weights: leave accumulate out"
            )
        distributed.shard_network(network, cell, model, device)
        parts = {"forward": self.forward, "loss": self.loss, "backward": self.backward}
        self.pipeline = Pipeline(network, cell, model, device, parts) if distributed.is_pipeline(cell) else None
        self.others = place_network(model.others(SimpleNamespace(**cell["shape"])), cell, device)
        ranges.mark(self.others, OTHERS)
        made = map(distributed.separate_groups, make_all_optimizers(model, network, self.others))
        self.optimizers = [choose_implementation(one, cell) for one in made]
        if cell.get("clip") and any(map(_sparse_weights, (network, self.others))):
            raise ConfigError(
                f"clip: {cell['clip']}: {cell['model']} has sparse gradients, of which torch knows no norm"
            )
        self.network = distributed.wrap_network(network, cell, device)
        self._autocast = make_autocast(cell, device)
        self._scaler = torch.amp.GradScaler(device.type, enabled=cell["precision"] == "fp16")
        # Moving averages of the network's weights, from the first update on.
        self.averages: dict[torch.Tensor, torch.Tensor] = {}
        # Looks at the gradients of the first steps, if set.
        self.first_steps: FirstSteps | None = None
        # Whether the model's own training step has used forward() and update() so far.
        self._forward = self._updated = False

    def split_step(self, batch: Any) -> Sequence[Any]:
        """Return the batches of a step: those of a list if the cell accumulates, else the one."""
        return batch if self.cell.get("accumulate") else [batch]

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Range and autocast around the computation of outputs."""
        self._forward = True
        with self._ranges("forward"), self._autocast():
            yield

    @contextlib.contextmanager
    def loss(self) -> Iterator[None]:
        """Range and autocast around the computation of the loss."""
        with self._ranges("loss"), self._autocast():
            yield

    def update(self, loss: torch.Tensor, *several: torch.optim.Optimizer) -> None:
        """Compute gradients of a loss, and step the optimizer, or each of several; without one, gradients add up."""
        with self.backward():
            self._scaler.scale(loss).backward()
        if several:
            self.step_optimizers(loss, several)

    def backward(self) -> contextlib.AbstractContextManager[None]:
        """Range around the computation of gradients."""
        self._updated = True
        return self._ranges("backward")

    def step_optimizers(self, loss: torch.Tensor, several: Sequence[torch.optim.Optimizer]) -> None:
        """Update the weights by the gradients of a loss, which are there."""
        if self.first_steps and self.first_steps.is_noting():
            self.first_steps.note_gradients(several, self._scaler.scale(torch.ones((), device=loss.device)))
        decay = self.cell.get("ema")
        if decay and not self.averages:
            self.averages = {one: one.detach().clone() for one in self.network.parameters()}
        with self._ranges("optimizer"):
            if largest := self.cell.get("clip"):
                for optimizer in several:
                    self._scaler.unscale_(optimizer)
                clip_gradients(find_weights(self.network, several), largest, self.pipeline)
            for optimizer in several:
                self._scaler.step(optimizer)
            self._scaler.update()
            for optimizer in several:
                optimizer.zero_grad(set_to_none=True)
            if decay:
                average_weights(self.averages, find_weights(self.network, several), decay)

    def check(self, loss: Any) -> None:
        """Check that a training step returned its loss and applied the cell's settings; loss: the returned value.

        The model's own step must apply the precision by itself. Autocast around the whole step would include the
        backward pass and the optimizers, and the gradient scaler has to wrap the backward pass.

        Raises:
            ConfigError: the step did not; the message says which method it has to call.
        """
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            kind = f"a tensor of {loss.numel()}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ConfigError(f"{self._step}: it returned {kind}: return the loss, a tensor of one number")
        precision = self.cell["precision"]
        if precision in AUTOCAST and not self._forward:
            raise ConfigError(
                f"{self._step}: precision = '{precision}' was not applied, as the step did not enter "
                "trainer.forward(): call the network within `with trainer.forward():`, or set precision to fp32"
            )
        if self._scaler.is_enabled() and not self._updated:
            raise ConfigError(
                f"{self._step}: precision = '{precision}' was not applied, as gradients were not scaled: have "
                "trainer.update(loss, optimizer) make them, or set precision to bf16 or fp32"
            )
        own: Mapping[str, Any] = self.cell
        for key in () if self._updated else UPDATED:
            if own.get(key):
                raise ConfigError(
                    f"{self._step}: {key} = {own[key]} was not applied: have trainer.update(loss, optimizer) "
                    f"update the weights, or leave {key} out"
                )

    @property
    def _step(self) -> str:
        return f"training_step of {self.cell['module']}"


def run_training_step(trainer: Trainer, batch: Any) -> torch.Tensor:
    """Run forward, loss, backward and optimizer once each; returns the loss.

    A cell that accumulates runs all but the optimizer on each batch of a list, and returns the mean of the losses.
    """
    if trainer.pipeline:
        loss = trainer.pipeline.run(batch)
        trainer.step_optimizers(loss, trainer.optimizers)
        return loss
    *others, last = trainer.split_step(batch)
    # Outputs stay in memory until those of the next pass replace them, as in loops that people write.
    losses = []
    for one in others:
        with distributed.keep_gradients(trainer.network):
            _outputs, loss = run_pass(trainer, one)
            trainer.update(loss)
        losses.append(loss.detach())
    _outputs, loss = run_pass(trainer, last)
    trainer.update(loss, *trainer.optimizers)
    return torch.stack([*losses, loss.detach()]).sum() if losses else loss


def run_pass(trainer: Trainer, batch: Any) -> tuple[Any, torch.Tensor]:
    """Run forward and loss on a batch; returns outputs, and its part of the mean loss of the step's batches."""
    inputs, target = batches.split_batch(batch, trainer.cell, trainer.model)
    with trainer.forward():
        outputs = batches.call_network(trainer.network, batch, inputs)
    with trainer.loss():
        loss, several = trainer.model.loss(outputs, target), trainer.cell.get("accumulate", 1)
        return outputs, loss if several == 1 else loss / several


def choose_memory_format(cell: "CellSettings") -> torch.memory_format:
    """Memory layout of images and convolution weights."""
    return torch.channels_last if cell["channels_last"] else torch.contiguous_format


def place_network(network: Any, cell: "CellSettings", device: torch.device) -> nn.Module:
    """Move a network to the device, in the cell's memory format.

    Raises:
        ConfigError: the cell is channels-last, but some weights get their shapes only in the first step.
    """
    if not any(map(is_lazy, network.parameters())):
        return network.to(device, memory_format=choose_memory_format(cell))
    if cell["channels_last"]:
        raise ConfigError(
            f"channels_last: true: {cell['model']} has lazy modules, whose weights have no shape yet: give them their "
            "sizes in build, or leave channels_last out"
        )
    return network.to(device)


def make_autocast(cell: "CellSettings", device: torch.device) -> Any:
    """Make a function that creates the autocast context of the cell's precision."""
    dtype = AUTOCAST.get(cell["precision"])
    return lambda: torch.autocast(device.type, dtype) if dtype else contextlib.nullcontext()


def set_arithmetic(cell: "CellSettings") -> None:
    """Set torch's global state: TensorFloat-32 and the choice of cuDNN algorithms."""
    tf32 = cell["precision"] == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = cell["cudnn_benchmark"]
    torch.backends.cudnn.deterministic = cell["deterministic"]
    # Called only for a change: the call also loads torch's compiler, which takes a second.
    if cell["deterministic"] or torch.are_deterministic_algorithms_enabled():
        use_deterministic_algorithms(cell["deterministic"])
    # With deterministic algorithms, torch would also fill new tensors, by launches that are not the model's.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def use_deterministic_algorithms(wanted: bool = True) -> None:
    """Let PyTorch, cuDNN and cuBLAS use only algorithms whose results repeat exactly, or any algorithm again.

    Some operations have no such algorithm: torch names them in a warning, and the run continues.
    """
    torch.backends.cudnn.deterministic = wanted
    if wanted:
        # cuBLAS repeats its results only with workspaces of a fixed size, which it reads when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted, warn_only=True)
