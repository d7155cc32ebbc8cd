"""Provides a cell's batches, and notes how much of them is padding."""

import inspect
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset

from profzoo.cell import secret_values
from profzoo.cell.process_count import share_count
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.harness import distributed, inspection
from profzoo.harness.interface import ModelFunctions, no_sample
from profzoo.harness.tasks import images, tokens

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import LoadingFacts, PaddedRows


# Splits a batch into input and target; a mapping of the network's arguments serves as both.

FORMS = "a pair (input, target), or a mapping of the network's arguments"


def split_batch(batch: Any, cell: "CellSettings", model: ModelFunctions) -> tuple[Any, Any]:
    """Input and target of a batch; a mapping is returned as both.

    Raises:
        ConfigError: the batch is neither a pair nor a mapping; the message names the function that made the batch.
    """
    if isinstance(batch, Mapping):
        return batch, batch
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise ConfigError(
        f"{cell['model']}: a batch is {_described(batch)}, where {FORMS} is needed: "
        f"have {name_batch_maker(cell, model)} of "
        f"{cell['module']} {'return that' if model.collate else 'give one'}"
    )


def name_batch_maker(cell: "CellSettings", model: ModelFunctions) -> str:
    """Name of the function in the model's file that determines the form of batches or samples."""
    if model.collate:
        return "collate(samples)"
    if cell["data"]["source"] != "synthetic":
        return "adapt(sample, shape)"
    return "dataset(shape)" if model.dataset else "sample(shape, generator)"


def call_network(network: nn.Module, batch: Any, inputs: Any) -> Any:
    """Outputs of the network for a batch; a mapping is passed as keyword arguments."""
    return network(**batch) if isinstance(batch, Mapping) else network(inputs)


def _described(batch: Any) -> str:
    """Describe the form of a batch in a few words.

    >>> _described([1, 2, 3]), _described("text")
    ('a list of 3', 'of type str')
    """
    if isinstance(batch, Tensor):
        return f"one tensor of {' x '.join(map(str, batch.shape)) or 'one number'}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"of type {type(batch).__name__}"


# Notes how much of the first batches is padding, by their attention mask, or by numbers that rows end in.
#
# Only tensors of two dimensions are looked at: rows by places. An attention mask says which places of tensors of its
# shape hold words. Without one, the number that most rows of a tensor of words end in counts as padding where rows
# repeat it at their ends. It is hardly ever found between other words, and a tensor of at most two numbers is not a
# text: it is a mask, or has a place per class. A row of one number is not padded, and tensors that are named as targets
# or masks are left out.

# So many batches are looked at, and tensors of at least so many places.
BATCHES, PLACES = 2, 16
# Types of the numbers of words.
WORDS = (torch.int64, torch.int32)
# Names of masks that are 1 where there is a word, as in Hugging Face's models.
MASKS = ("attention_mask", "decoder_attention_mask", "encoder_attention_mask", "input_mask")
# Parts of the names of tensors that stand beside the words.
BESIDE = ("label", "target", "mask", "type_id", "segment", "position")
# Of this many places with words, at most one has the number of the padding.
BETWEEN = 20


class BatchPadding:
    """Padding of the first batches of a run; call `note` between steps of the warm-up, and `read` after the run."""

    def __init__(self) -> None:
        """Nothing is noted yet."""
        self._left = BATCHES
        self._found: list[tuple[tuple[int, int], str, Tensor]] = []

    def note(self, batch: Any) -> None:
        """Note a batch, on whatever device it is; numbers stay there until they are read."""
        if self._left:
            self._left -= 1
            with suppress(Exception):
                self._found += [
                    ((rows.shape[0], rows.shape[1]), mask, count_masked(rows) if mask else count_ends(rows))
                    for mask, rows in find_rows(batch)
                ]

    def read(self) -> "list[PaddedRows]":
        """Return the padded tensors of the noted batches, without those that are not padded."""
        found: list[PaddedRows] = []
        with suppress(Exception):
            for (rows, places), mask, counts in self._found:
                value, padded, longest = (int(one) for one in counts.tolist())
                if padded and longest:
                    found.append(
                        {"rows": rows, "places": places, "value": value, "padded": padded, "longest": longest,
                         "mask": mask}
                    )  # fmt: skip
        return found


def find_rows(batch: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors that tell of padding: each attention mask with its name, and without a name what may be words."""
    given = [
        (name.lower(), one.detach())
        for name, one in inspection.find_named_tensors(batch)
        if one.dim() == 2 and one.shape[1] >= PLACES and one.shape[0]
    ]
    masks = [(name, one) for name, one in given if name in MASKS]
    yield from masks
    told = {one.shape for _, one in masks}
    for name, one in given:
        if one.dtype in WORDS and one.shape not in told and not any(part in name for part in BESIDE):
            yield "", one


def count_masked(mask: Tensor) -> Tensor:
    """Return 0, the places that a mask of ones and zeros leaves out at both ends of rows, and its longest row's places.

    A mask of other numbers leaves nothing out.
    """
    out = mask == 0
    ends = (run_length(out) + run_length(out.flip(1))).clamp(max=mask.shape[1])
    plain = (out | (mask == 1)).all()
    ends = torch.where(plain, ends, 0)
    return torch.stack([torch.zeros_like(ends.sum()), ends.sum(), mask.shape[1] - ends.min()])


def count_ends(rows: Tensor) -> Tensor:
    """Return the number that most rows end in, its places at their ends, and the places of the longest row before."""
    value = rows[:, -1].mode().values
    same = rows == value
    trailing = run_length(same.flip(1))
    # A row of one number may be anything.
    trailing = torch.where(trailing < rows.shape[1], trailing, 0)
    whole = same.all(1).sum() * rows.shape[1]
    padded = trailing.sum()
    between, kept = same.sum() - whole - padded, rows.numel() - whole - padded
    others = (rows != rows.min()) & (rows != rows.max())
    # A last word that is there once is not padding.
    is_text = others.any() & (between * BETWEEN <= kept) & (trailing.max() > 1)
    trailing = torch.where(is_text, trailing, 0)
    return torch.stack([value.long(), trailing.sum(), rows.shape[1] - trailing.min()])


def run_length(flags: Tensor) -> Tensor:
    """Return how many places at the beginning of each row are true, without a gap."""
    return flags.long().cumprod(1).sum(1)


# Notes what of the CPU a batch and the rest of a step take, by which the step with worker processes is predicted.

# Steps that fill caches and start workers, and are left out.
FIRST_STEPS = 2


class BatchLoading:
    """Cores that are busy while a batch is loaded and in the rest of a step, and the size of a batch.

    Call `begin` before a batch is asked for and `end` with the batch, in steps of the warm-up.
    """

    def __init__(self) -> None:
        """Nothing is noted yet."""
        # Wall time and CPU time of the process, in ns, of each batch and of each rest of a step.
        self._batches: list[tuple[int, int]] = []
        self._rests: list[tuple[int, int]] = []
        self._at: tuple[int, int] | None = None
        self._bytes = 0

    def begin(self) -> None:
        """Note that a batch is asked for."""
        self._lap(self._rests)

    def end(self, batch: Any) -> None:
        """Note that this batch has come."""
        self._lap(self._batches)
        with suppress(Exception):
            tensors = inspection.find_tensors(batch)
            self._bytes = sum(one.numel() * one.element_size() for one in tensors if one.device.type == "cpu")
        # Without the time of looking at the batch.
        self._at = time.perf_counter_ns(), time.process_time_ns()

    def take(self, source: Iterator[Any]) -> Any:
        """Return the next batch, with both notes; None at the end of the source."""
        self.begin()
        batch = next(source, None)
        self.end(batch)
        return batch

    def _lap(self, into: list[tuple[int, int]]) -> None:
        now = time.perf_counter_ns(), time.process_time_ns()
        if self._at:
            into.append((now[0] - self._at[0], now[1] - self._at[1]))
        self._at = now

    def read(self, **known: Any) -> "dict[str, LoadingFacts]":
        """Return what was noted as the fact `loading`, with what is known besides; empty if there is neither.

        If no step is left after the first ones, nothing was noted.
        """
        noted = self._batches[FIRST_STEPS:], self._rests[FIRST_STEPS:]
        found = cast("LoadingFacts", known)
        if all(noted):
            loading, rest = (sum(cpu for _, cpu in own) / sum(wall for wall, _ in own) for own in noted)
            found |= {"loading_cores": loading, "step_cores": rest, "batch_bytes": self._bytes}
        return {"loading": found} if found else {}


class WorkerStarts:
    """How long a script's loaders take to start and end worker processes, and to give the first batch of each.

    A loader starts its workers anew in each epoch, unless it keeps them (persistent_workers).
    """

    def __init__(self) -> None:
        """Nothing is noted yet."""
        self.starts = 0
        self._starting_ns, self._first_ns = 0, 0
        # Workers of which no batch has come yet, by iterator. They take turns.
        self._fresh: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def started(self, iterator: Any, workers: int, took_ns: int) -> None:
        """Note that a loader has started so many workers for this iterator."""
        self.starts += 1
        self._starting_ns += took_ns
        self._fresh[iterator] = workers

    def ended(self, took_ns: int) -> None:
        """Note that workers have ended, for which the process waited."""
        self._starting_ns += took_ns

    def batch_came(self, iterator: Any, took_ns: int) -> None:
        """Note how long the process waited for a batch of this iterator."""
        if left := self._fresh.get(iterator, 0):
            self._fresh[iterator] = left - 1
            self._first_ns += took_ns

    def read(self) -> dict[str, float]:
        """Return what was noted, as facts of loading; empty if no workers were started."""
        if not self.starts:
            return {}
        return {
            "worker_starts": self.starts,
            "starting_s": self._starting_ns / 1e9,
            "first_batches_s": self._first_ns / 1e9,
        }


# Reads a model's own data set: each sample is read when needed, so that reading is measured.


def uses_own_dataset(cell: "CellSettings", model: ModelFunctions) -> bool:
    """Whether the cell uses the model's own data set; False if the configuration names another."""
    return model.dataset is not None and cell["data"]["source"] == "synthetic"


def make_dataset(cell: "CellSettings", model: ModelFunctions) -> Any:
    """Make the data set of a cell for which `uses_own_dataset` is true.

    Raises:
        ConfigError: the result is not a data set, has no length, is too short for one batch, or cannot be split over
            the processes.
    """
    assert model.dataset is not None
    found, where, count = model.dataset(SimpleNamespace(**cell["shape"])), _where(cell), share_count(cell)
    kind = type(found).__name__
    if isinstance(found, IterableDataset):
        if count > 1:
            raise ConfigError(
                f"{where} is an IterableDataset, which {count} processes cannot share: return one with a length, or "
                "set gpus and nodes to 1"
            )
        return found
    if not callable(getattr(found, "__getitem__", None)):
        raise ConfigError(f"{where} returned {kind}: return a torch Dataset")
    try:
        length = len(found)
    except (TypeError, NotImplementedError):
        why = "which has no length: give it __len__, or make it an IterableDataset"
        raise ConfigError(f"{where} returned {kind}, {why}") from None
    if length // count < cell["batch"]:
        each = f" in each of {count} processes" if count > 1 else ""
        few = f"too few for one batch of {cell['batch']}{each}"
        raise ConfigError(f"{where} has {length} samples, {few}: lower batch, or give it more")
    return found


def repeat_batches(
    loader: DataLoader[Any], share: DistributedSampler[Any] | None, cell: "CellSettings", epochs: int | None = None
) -> Iterator[Any]:
    """Yield batches and start over at the data set's end; share: sampler of this process among several.

    epochs: how many there are; without end if None.

    Raises:
        ConfigError: the data set ends before its first batch.
    """
    for epoch in itertools.count() if epochs is None else range(epochs):
        if share is not None:
            share.set_epoch(epoch)
        batch = None
        for batch in loader:
            yield batch
        if batch is None:
            raise ConfigError(f"{_where(cell)} ended before one batch of {cell['batch']}: lower batch, or give it more")


def _where(cell: "CellSettings") -> str:
    return f"dataset(shape) of {cell['module']}"


# Provides a cell's batches through a DataLoader: synthetic samples, the model's own data set, or torchvision's.

Sample = tuple[Any, Any]
# Number of batches of distinct synthetic samples.
DISTINCT_BATCHES = 2
# What torch's own collating function says of samples that it makes no batch of; also as a worker process repeats it.
UNCOLLATED = re.compile(r"default_collate: batch must contain .*; found <class '(?:.*\.)?(?P<type>\w+)'>")
UNEQUAL = re.compile(r"stack expects each tensor to be equal size|in list of batch should be of equal size")


class SyntheticDataset(Dataset[Sample]):
    """Random samples, the same for the same seed and index.

    A few samples are made before the first step and used in turn. Drawing random numbers in every step would take
    longer than the step of a small model, and would be profiled with it. The time to make a sample is therefore in no
    step: a model whose samples are costly to make defines `dataset` instead.
    """

    def __init__(self, sample: Callable[..., Sample], shape: SimpleNamespace, count: int, distinct: int, seed: int):
        """sample: the model file's function of (shape, generator); distinct: samples made beforehand."""
        generators = (torch.Generator().manual_seed(seed * 1_000_003 + index) for index in range(min(distinct, count)))
        self._pool = [sample(shape, generator) for generator in generators]
        if any(one is None for one in self._pool):
            raise ConfigError(f"sample(shape, generator) of {sample.__module__} returned None: return {FORMS}")
        self._count = count

    def __len__(self) -> int:
        """Number of samples per epoch."""
        return self._count

    def __getitem__(self, index: int) -> Sample:
        """Sample with that index."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._pool[index % len(self._pool)]


class AdaptedDataset(Dataset[Sample]):
    """A torchvision data set with samples converted to the form that the model's task takes."""

    def __init__(self, dataset: Any, adapt: Callable[..., Sample], shape: SimpleNamespace) -> None:
        """adapt: from ((PIL image, label or mask), shape) to (input, target)."""
        self._dataset, self._adapt, self._shape = dataset, adapt, shape

    def __len__(self) -> int:
        """Number of samples in the data set."""
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        """Sample with that index, converted."""
        return self._adapt(self._dataset[index], self._shape)


def iterate_batches(cell: "CellSettings", model: ModelFunctions) -> Iterator[Any]:
    """Yield a step's batch, or list of batches if it accumulates several, from one DataLoader.

    A model's own data set is endless; others are read for the cell's number of epochs.

    Raises:
        ConfigError: the data set does not exist, is too small, or does not fit the model's task; or torch cannot make
            a batch of its samples, and the model has no function that does.
    """
    own = make_dataset(cell, model) if uses_own_dataset(cell, model) else None
    dataset = _dataset(cell, model) if own is None else own
    streamed = isinstance(dataset, IterableDataset)
    share = None if streamed else distributed.make_sampler(dataset, cell)
    loader: DataLoader[Sample] = DataLoader(
        dataset,
        batch_size=cell["batch"],
        shuffle=cell["phase"] == "train" and share is None and not streamed,
        sampler=share,
        drop_last=True,
        num_workers=cell["workers"],
        pin_memory=cell["pin_memory"] and torch.cuda.is_available(),
        prefetch_factor=cell.get("prefetch_factor") if cell["workers"] else None,
        persistent_workers=cell["workers"] > 0 and cell.get("persistent_workers") is not False,
        collate_fn=model.collate,
        generator=torch.Generator().manual_seed(cell["seed"]),
    )
    coming = repeat_batches(loader, share, cell, cell["epochs"] if own is None else None)
    found = _explain_collating(coming, cell, model)
    several = cell.get("accumulate", 1)
    return found if several == 1 else map(list, zip(*[found] * several, strict=False))


def _explain_collating(batches: Iterator[Any], cell: "CellSettings", model: ModelFunctions) -> Iterator[Any]:
    """Yield the batches.

    Raises:
        ConfigError: torch's collating function does not know a type in the samples, or their sizes differ; also if it
            ran in a worker.
    """
    try:
        yield from batches
    except (TypeError, RuntimeError) as error:
        unknown, unequal = UNCOLLATED.search(str(error)), UNEQUAL.search(str(error))
        if model.collate or not (unknown or unequal):
            raise
        what = f"a sample holds an object of type {unknown['type']}" if unknown else "samples differ in size"
        form = "tensors, numbers, tuples or mappings" if unknown else "samples of one size"
        raise ConfigError(
            f"{cell['model']}: {what}, and torch makes no batch of that: define collate(samples) in {cell['module']}, "
            f"or have {name_batch_maker(cell, model)} give {form}"
        ) from error


def describe_source(cell: "CellSettings", model: ModelFunctions) -> dict[str, Any]:
    """Source of the samples (`from`) and number made beforehand (`pool`; None if each is read when needed)."""
    if uses_own_dataset(cell, model):
        return {"from": "dataset", "pool": None}
    if cell["data"]["source"] != "synthetic":
        source = cell["data"]["source"]
        return {"from": source if source == "text" else cell["data"]["name"] or source, "pool": None}
    return {"from": "sample", "pool": min(DISTINCT_BATCHES * cell["batch"], cell["samples"])}


def move_to_device(batch: Any, device: torch.device, memory_format: torch.memory_format) -> Any:
    """Move a batch's tensors to the device; 4-d floating-point ones also get the memory format.

    Raises:
        ConfigError: an object of an unknown type holds tensors; they would stay on the host.
    """

    def placed(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            if part.layout is torch.strided and part.dim() == 4 and part.is_floating_point():
                return part.to(device, non_blocking=True, memory_format=memory_format)
            return part.to(device, non_blocking=True)
        if inspection.has_to_method(part):
            moved = part.to(device, **_without_waiting(part.to))
            return part if moved is None else moved
        for tensor in inspection.find_tensors(part):
            if tensor.device.type != device.type:
                raise ConfigError(
                    f"the batch holds tensors on {tensor.device} in an object of type {type(part).__name__}: give it a "
                    "method to(device), make it a dataclass, or define `transfer` in the model's file"
                )
        return part

    return inspection.map_leaves(placed, batch)


def _without_waiting(to: Callable[..., Any]) -> dict[str, bool]:
    """Keyword that makes a `to` method copy asynchronously, if the method accepts it."""
    taken = inspect.signature(to).parameters.values()
    known = any(one.name == "non_blocking" or one.kind is one.VAR_KEYWORD for one in taken)
    return {"non_blocking": True} if known else {}


def _dataset(cell: "CellSettings", model: ModelFunctions) -> Dataset[Sample]:
    data: Mapping[str, Any] = cell["data"]
    source, name, root, arguments = (data[key] for key in ("source", "name", "root", "arguments"))
    shape = SimpleNamespace(**cell["shape"])
    if source == "synthetic":
        return SyntheticDataset(model.sample, shape, cell["samples"], DISTINCT_BATCHES * cell["batch"], cell["seed"])

    if source == "text":
        return _read_texts(cell, model, shape)
    if model.adapt is None:
        raise ConfigError(f"{cell['model']} takes no image data set: set data.source to synthetic")
    from torchvision import datasets

    share = data.get("test", 0)
    if source == "folder":
        if not root or not Path(root).is_dir():
            raise ConfigError(f"data.root = {root!r} is not a folder: name the one that holds your images")
        if parts := images.find_parts(root):
            root, share = str(parts[cell["phase"] != "train"]), 0
        raw: Any = images.open_folder(root, parts or ())
    else:
        known = [key for key in datasets.__all__ if isinstance(getattr(datasets, key), type)]
        if name not in known:
            raise ConfigError(f"data.name = {name!r} is not a dataset of torchvision: {suggest_nearest(name, known)}")
        if arguments.get("download"):
            raise ConfigError(f"data.arguments.download: profzoo downloads nothing; put {name} under {root!r} yourself")
        place = {} if name == "FakeData" else {"root": root}
        try:
            raw = getattr(datasets, name)(**place, **arguments)
        except (RuntimeError, TypeError, ValueError, OSError) as error:
            raise ConfigError(f"data.name = {name}, data.root = {root!r}: {error}") from error
    own = images.of_phase(len(raw), share, cell["phase"])
    _check_count(len(own), cell)
    # Take samples from the whole data set: folders are read class by class, so the first samples share one class.
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(cell["seed"]))
    return Subset(AdaptedDataset(raw, model.adapt, shape), [own[at] for at in order[: cell["samples"]].tolist()])


def _check_count(count: int, cell: "CellSettings") -> None:
    if count < cell["samples"]:
        data = cell["data"]
        place = f"root = {secret_values.mask_secrets(data['root'])!r}" if data["root"] else f"name = {data['name']}"
        raise ConfigError(
            f"{cell['model']}: data.{place} has {count} samples, {cell['samples']} are needed: "
            "add more, or lower samples, batch, warmup or window, or raise epochs"
        )


def _read_texts(cell: "CellSettings", model: ModelFunctions, shape: SimpleNamespace) -> Any:
    """Samples of texts in the form of the model's own."""
    sample = model.sample is not no_sample and model.sample(shape, torch.Generator().manual_seed(cell["seed"]))
    form = tokens.find_form(sample)
    if form is None:
        raise ConfigError(
            f"{cell['model']} takes no texts: set data.source to {'folder' if model.adapt else 'synthetic'}"
        )
    root = cell["data"]["root"]
    if not root or not Path(root).exists():
        told = root and secret_values.mask_secrets(root)
        raise ConfigError(f"{cell['model']}: data.root = {told!r} does not exist: name a text file or a folder")
    found = tokens.read_samples(cell["data"], cell["phase"], form, shape, cell["samples"], cell["seed"])
    _check_count(len(found), cell)
    return found
