"""Texts as numbers of tokens, random or from files; and what tells the clock of a run that a token was generated."""

import hashlib
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from profzoo.errors import ConfigError, first_error_line
from profzoo.harness import interface
from profzoo.harness.tasks import images
from profzoo.records import atomic_writes

_listeners: list[Callable[[], object]] = []


def random(vocabulary: int, length: int, generator: torch.Generator) -> Tensor:
    """Tokens (length,) of a vocabulary, all as likely."""
    return torch.randint(vocabulary, (length,), generator=generator)


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the vocabulary of (batch, length, vocabulary); targets of -100 do not count."""
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def note_token() -> None:
    """Say that the host has launched the work of one more token; a model calls this after each.

    Without a clock that listens, nothing happens. Tokens stay unknown in code that torch.compile has compiled, and in a
    step that was captured in a CUDA graph, whose replays do not call this.
    """
    if torch.compiler.is_compiling():
        return
    for listener in _listeners:
        listener()


def listen(listener: Callable[[], object]) -> None:
    """Call a function at each token from now on."""
    _listeners.append(listener)


def ignore(listener: Callable[[], object]) -> None:
    """Call the function no more."""
    _listeners.remove(listener)


# Texts from files, as numbers of a vocabulary that is learnt from those of the training. Each line is a text.

PADDING, START, END, MASK, UNKNOWN = range(5)
IGNORED = -100
# Of tokens to be told, a tenth stays as it is and a tenth becomes any other (Devlin et al. 2018, section 3.1).
TOLD, KEPT, CHANGED = 0.15, 0.1, 0.1
# Tokens of a model whose shape names no vocabulary, lines from which one is learnt at most, and lines kept together.
VOCABULARY, LEARNT_LINES, NEIGHBOURS = 8000, 1_000_000, 64


# Characters of a line that sentencepiece is given at once: it learns nothing of lines of more than a mebibyte.
PIECE = 1 << 14


class Line(NamedTuple):
    """A line's fields between tabs, the file or folder that it is in, and the number of its class."""

    fields: tuple[str, ...]
    place: str
    label: int = 0


def read_lines(root: str, languages: str | None) -> list[Line]:
    """Lines that are not empty of a file, or of all files below a folder, in the order of their names.

    languages: the endings of files whose lines belong together, such as en-de; None if there are none.

    Raises:
        ConfigError: a file is no text, files do not belong together, or there is no line.
    """
    place = Path(root)
    paths = [place] if place.is_file() else [one for one in images.find_files(place) if one.is_file()]
    if languages:
        lines = list(_read_aligned(place, paths, languages))
    else:
        lines = [
            Line(tuple(map(str.strip, line.split("\t"))) if path.suffix == ".tsv" else (line.strip(),), top)
            for path in paths
            for top in ["".join(path.relative_to(place).parts[:1])]
            for line in _read_file(path)
        ]
    lines = [line for line in lines if all(line.fields)]
    if not lines:
        raise ConfigError(f"data.root = {root!r} holds no line of text: name a text file, or a folder of some")
    return lines


def _read_file(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").removeprefix("\ufeff").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8 (byte {error.start + 1}): convert it, or move it away") from None


def _read_aligned(place: Path, paths: Sequence[Path], languages: str) -> Iterator[Line]:
    source, _, target = languages.partition("-")
    if not (source and target):
        raise ConfigError(
            f"data.name = {languages!r} does not name two endings, such as en-de: name those of your files"
        )
    if not any(path.suffix == f".{source}" for path in paths if path != place):
        what = f"holds no file that ends in .{source}" if place.is_dir() else "is not a folder"
        raise ConfigError(
            f"data.root = {str(place)!r} {what}: data.name = {languages} takes a folder of .{source} and .{target}"
        )
    for path in paths:
        if path.suffix == f".{source}":
            beside = path.with_suffix(f".{target}")
            if beside not in paths:
                raise ConfigError(f"{path} has no {beside.name} beside it: add the file, or change data.name")
            here, there = _read_file(path), _read_file(beside)
            if len(here) != len(there):
                raise ConfigError(
                    f"{path} and {beside.name} have {len(here)} and {len(there)} lines: each line needs its translation"
                )
            yield from (Line((one.strip(), other.strip()), "") for one, other in zip(here, there, strict=True))


def cut_text(text: str, most: int = PIECE) -> Iterator[str]:
    """Yield pieces of a text of at most so many characters, cut behind spaces where it has some.

    >>> list(cut_text("one two three", 6))
    ['one ', 'two ', 'three']
    """
    at = 0
    while at < len(text):
        end = at + most
        end = end if end >= len(text) else text.rfind(" ", at, end) + 1 or end
        yield text[at:end]
        at = end


def learn_vocabulary(texts: Sequence[str], size: int, folder: Path) -> Any:
    """Byte-pair vocabulary of at most so many tokens, a SentencePieceProcessor.

    folder: where it is kept, under the digest of what it was learnt from.

    Raises:
        ConfigError: sentencepiece is missing, texts have more characters than the vocabulary tokens, or the folder
            cannot be written.
    """
    sentencepiece = interface.import_extra("sentencepiece", "data.source = text", "text")
    texts = texts[:: -(-len(texts) // LEARNT_LINES)]
    digest = hashlib.blake2b(f"{sentencepiece.__version__} {size}".encode(), digest_size=16)
    for text in texts:
        digest.update(f"\n{text}".encode())
    path = folder / f"{digest.hexdigest()}.model"
    if path.exists():
        try:
            return sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        except RuntimeError:  # It is damaged, and is learnt again.
            path.unlink(missing_ok=True)
    made = _train_vocabulary(sentencepiece, texts, size)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_writes.write_synced(path, made)
    except OSError as error:
        raise ConfigError(
            f"data.vocabulary = {str(folder)!r} cannot be written ({error.strerror}): name a folder of yours"
        ) from error
    return sentencepiece.SentencePieceProcessor(model_proto=made)


def _train_vocabulary(library: Any, texts: Sequence[str], size: int) -> bytes:
    made, pieces = io.BytesIO(), itertools.chain.from_iterable(map(cut_text, texts))
    places = {"pad_id": PADDING, "bos_id": START, "eos_id": END, "unk_id": UNKNOWN, "control_symbols": ["<mask>"]}
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=pieces, model_writer=made, model_type="bpe", vocab_size=size,
            hard_vocab_limit=False, max_sentence_length=1 << 20, minloglevel=3, **places,
        )  # fmt: skip
    except RuntimeError as error:
        if needed := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            raise ConfigError(
                f"vocabulary = {size} has no room for the texts' characters: set vocabulary to {needed[1]} or more"
            ) from None
        raise ConfigError(
            f"sentencepiece learns no vocabulary from the texts ({first_error_line(error)}): name others in data.root"
        ) from error
    return made.getvalue()


def read_samples(
    data: Mapping[str, Any], phase: str, form: "TextForm", shape: SimpleNamespace, count: int, seed: int
) -> list[Any]:
    """So many samples of the texts that `data` names, or as many as there are, from all over the phase's part of them.

    Raises:
        ConfigError: the texts, or what they are to be read with, do not fit the model.
    """
    parts = images.find_parts(data["root"])
    lines, *tests = (read_lines(str(part), data["name"]) for part in parts or [data["root"]])
    own = [*lines, *(tests[0] if tests else ())]
    if form.kind == "classified":
        own = _label(own, getattr(shape, "classes", None))
    if tests:
        trained, tested = own[: len(lines)], own[len(lines) :]
    else:
        trained, tested = (
            [own[at] for at in images.of_phase(len(own), data.get("test", 0), one)] for one in ("train", "")
        )
    size = getattr(shape, "vocabulary", VOCABULARY)
    vocabulary = learn_vocabulary([" ".join(line.fields) for line in trained], size, Path(data["vocabulary"]))
    chosen, samples = trained if phase == "train" else tested, TextSamples(form, shape, vocabulary, seed)
    # Lines that make one window stay together.
    block = NEIGHBOURS if samples.joins_lines else 1
    order = torch.randperm(-(-len(chosen) // block), generator=torch.Generator().manual_seed(seed)).tolist()
    return samples.take([line for at in order for line in chosen[at * block : (at + 1) * block]], count)


def _label(lines: Sequence[Line], classes: int | None) -> list[Line]:
    """Lines of one field with the number of their class, which is the first of two fields, or else a file or folder."""
    if all(len(line.fields) == 2 for line in lines):
        lines = [Line(line.fields[1:], line.fields[0]) for line in lines]
    names = {name: number for number, name in enumerate(sorted({line.place for line in lines}))}
    found = len(names)
    if found == 1:
        raise ConfigError("the texts are of one class: name a folder with a file or folder for each class, or a .tsv")
    if classes and found > classes:
        raise ConfigError(
            f"the texts are of {found} classes, and the model tells {classes} apart: set classes to {found}"
        )
    return [Line((" ".join(line.fields),), line.place, names[line.place]) for line in lines]


class TextForm(NamedTuple):
    """How a model takes texts. kind: a method of TextSamples. length: tokens. features: of a word's vector."""

    kind: str
    length: int
    features: int = 0


def find_form(sample: Any) -> TextForm | None:
    """Form of a model's own synthetic sample (input, target); None if it is no text.

    >>> find_form((torch.tensor([5, 6, 7]), torch.tensor([6, 7, 8])))
    TextForm(kind='continued', length=3, features=0)
    """
    inputs, target = sample if isinstance(sample, tuple) and len(sample) == 2 else (None, None)
    if _is_text(inputs) and _is_text(target) and len(inputs) == len(target):
        return TextForm("masked" if target.eq(IGNORED).any() else "continued", len(inputs))
    if isinstance(inputs, tuple) and len(inputs) == 2:
        first, second = inputs
        if _is_text(first) and _is_text(second) and _is_text(target):
            return TextForm("translated", len(target))
        if isinstance(first, Tensor) and first.dim() == 2 and isinstance(second, int) and isinstance(target, int):
            return TextForm("classified", *first.shape)
    return None


def _is_text(one: Any) -> TypeGuard[Tensor]:
    return isinstance(one, Tensor) and one.dim() == 1 and one.dtype == torch.int64


class TextSamples:
    """Samples of lines in the form that a model takes; each method yields them until the lines end."""

    def __init__(self, form: TextForm, shape: SimpleNamespace, vocabulary: Any, seed: int) -> None:
        """shape: of the model, by whose `padded` and `packed` it is known whether its network skips padding."""
        self._form, self._vocabulary = form, vocabulary
        self._generator = torch.Generator().manual_seed(seed)
        self._count = vocabulary.get_piece_size()
        self._padded, self._packed = getattr(shape, "padded", False), getattr(shape, "packed", False)
        self.joins_lines = form.kind == "continued" or (form.kind == "masked" and not self._padded)

    def take(self, lines: Sequence[Line], count: int) -> list[Any]:
        """Return so many samples, or as many as the lines make."""
        if self._form.kind == "translated" and (odd := next((one for one in lines if len(one.fields) != 2), None)):
            raise ConfigError(
                f"{odd.fields[0][:30]!r} has {len(odd.fields) - 1} translations: give source and translation of a line "
                "by a tab in a .tsv file, or by two files and data.name, such as en-de"
            )
        made = getattr(self, f"_{self._form.kind}")(lines)
        return [sample for sample, _ in zip(made, range(count), strict=False)]

    def _tokens(self, text: str) -> Iterator[int]:
        return itertools.chain.from_iterable(map(self._vocabulary.encode, cut_text(text)))

    def _first(self, text: str, most: int) -> list[int]:
        """At most so many tokens of a text and its end."""
        return [*itertools.islice(self._tokens(text), most - 1), END]

    def _ids(self, text: str, most: int) -> Tensor:
        """Tokens of a text and its end, padded: (most,)."""
        found = self._first(text, most)
        return torch.tensor(found + [PADDING] * (most - len(found)))

    def _windows(self, lines: Sequence[Line], length: int) -> Iterator[Tensor]:
        """Windows of the texts one after the other; no place is padding."""
        texts = (itertools.chain(self._tokens(" ".join(line.fields)), [END]) for line in lines)
        left = itertools.chain.from_iterable(texts)
        while len(window := list(itertools.islice(left, length))) == length:
            yield torch.tensor(window)

    def _continued(self, lines: Sequence[Line]) -> Iterator[Any]:
        yield from ((text[:-1], text[1:]) for text in self._windows(lines, self._form.length + 1))

    def _masked(self, lines: Sequence[Line]) -> Iterator[Any]:
        length = self._form.length
        rows = (self._ids(" ".join(line.fields), length) for line in lines)
        for text in rows if self._padded else self._windows(lines, length):
            told, drawn = torch.rand(2, length, generator=self._generator)
            # At least one is to be told: the loss of none is not a number.
            told[0] = 0
            told = told.masked_fill(text == PADDING, 1)
            other = random(self._count, length, self._generator)
            shown = torch.where(drawn < KEPT, text, torch.where(drawn < KEPT + CHANGED, other, MASK))
            yield torch.where(told < TOLD, shown, text), text.masked_fill(told >= TOLD, IGNORED)

    def _translated(self, lines: Sequence[Line]) -> Iterator[Any]:
        for line in lines:
            source, target = (self._ids(text, self._form.length) for text in line.fields)
            before = torch.cat((torch.tensor([START]), target[:-1])).masked_fill(target == PADDING, PADDING)
            yield (source, before), target.masked_fill(target == PADDING, IGNORED)

    def _classified(self, lines: Sequence[Line]) -> Iterator[Any]:
        """Texts as vectors, which are drawn for each token; a network that does not skip padding has it in front."""
        _, length, features = self._form
        vectors = torch.randn(self._count, features, generator=torch.Generator().manual_seed(0))
        for line in lines:
            found = torch.tensor(self._first(line.fields[-1], length))
            words = torch.zeros(length, features)
            words[slice(len(found)) if self._packed else slice(length - len(found), length)] = vectors[found]
            yield (words, len(found) if self._packed else length), line.label
