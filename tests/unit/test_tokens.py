"""tasks/tokens: texts that packages ship as samples of each model of texts; vocabularies; one line for what does not fit."""

import codecs
import importlib
import os
import sys
import this
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models import bert, gnmt
from profzoo.errors import ConfigError
from profzoo.harness import interface
from profzoo.harness.step import batches, training_step
from profzoo.harness.tasks import tokens
from tests import zoo

FOLDER = os.environ.get("PROFZOO_TEXT")
if FOLDER:
    sys.path.append(FOLDER)
needs_library = pytest.mark.skipif(
    not FOLDER,
    reason="no sentencepiece: PROFZOO_TEXT names no folder; tests/tools/install-package.sh text DIR sets one up",
)
ZEN = codecs.decode(this.s, "rot13").split("\n")
# A translation that can be learnt: letters 13 places on.
PAIRS = [(line, codecs.encode(line, "rot13")) for line in ZEN if line]


def licence(package: str) -> str:
    """Text of the licence that a package ships."""
    files = metadata.files(package) or []
    return next(one for one in files if one.name.startswith("LICENSE")).read_text(encoding="utf-8")


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def cell(folder: Path, model: str, phase: str = "train", /, **given: Any) -> dict[str, Any]:
    """A tiny cell whose samples are the texts of a folder."""
    data = {"source": "text", "root": str(folder), "vocabulary": str(folder.parent / "kept")}
    named = {key: given.pop(key) for key in ("name", "test", "root") if key in given}
    sizes = {} if model == "lstm" else {"vocabulary": 150}
    return zoo.cell(model, phase, **{**sizes, **given}, data={**data, **named})


def loaded(tiny: dict[str, Any]) -> list[Any]:
    return list(batches.iterate_batches(tiny, interface.load_functions(tiny["module"])))


def texts_of(kept: Path, rows: torch.Tensor) -> list[str]:
    """Texts that rows of tokens are made of, by the only vocabulary that is kept."""
    (path,) = kept.glob("*.model")
    library = importlib.import_module("sentencepiece").SentencePieceProcessor(model_proto=path.read_bytes())
    return [library.decode(row.tolist()) for row in rows]


# For each model of texts, files that packages ship.
SHIPPED: dict[str, dict[str, str]] = {
    "lstm": {"plot_txt": licence("matplotlib"), "arrays_txt": licence("numpy")},
    "gnmt": {"zen_tsv": "\n".join("\t".join(pair) for pair in PAIRS)},
    "bert": {"zen_txt": "\n".join(ZEN)},
    "gpt": {"plot_txt": licence("matplotlib")},
}


@needs_library
@pytest.mark.parametrize("name", SHIPPED)
def test_a_model_trains_on_texts_that_packages_ship(tmp_path: Path, name: str) -> None:
    tiny = cell(write(tmp_path / "texts", **SHIPPED[name]), name)
    ((inputs, target),) = loaded(tiny)
    drawn, drawn_target = zoo.batch(zoo.cell(name))
    for found, known in ((inputs, drawn), (target, drawn_target)):
        for one, other in zip(
            found if isinstance(found, list | tuple) else [found],
            known if isinstance(known, list | tuple) else [known],
            strict=True,
        ):
            assert one.shape == other.shape and one.dtype == other.dtype
    trainer = zoo.trainer(tiny, zoo.network(tiny))
    assert training_step.run_training_step(trainer, (inputs, target)).isfinite()


@needs_library
def test_gpt_reads_the_text_word_by_word(tmp_path: Path) -> None:
    ((inputs, target),) = loaded(cell(write(tmp_path / "a", a_txt="\n".join(ZEN)), "gpt", tokens=40, batch=1))
    assert torch.equal(inputs[:, 1:], target[:, :-1])
    (text,) = texts_of(tmp_path / "kept", inputs)
    assert text[:20] in " ".join(line for line in ZEN if line)


@needs_library
def test_bert_masks_what_is_to_be_told_and_pads_no_window(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", a_txt="\n".join(ZEN))
    ((inputs, target),) = loaded(cell(folder, "bert", batch=8))
    told = target != tokens.IGNORED
    assert told[:, 0].all() and not told.all() and (inputs != tokens.PADDING).all()
    assert (inputs[told] == bert.MASK).any()
    # Where each line is a text of its own, what is behind its end is padding that is never to be told.
    form, shape = tokens.TextForm("masked", 12), SimpleNamespace(padded=True)
    vocabulary = tokens.learn_vocabulary([line for line in ZEN if line], 150, tmp_path / "kept")
    lines = [tokens.Line(("so",), 0), tokens.Line((ZEN[0] + ZEN[2],), 0)]
    (short, wanted), (long, _) = tokens.TextSamples(form, shape, vocabulary, 0).take(lines, 2)
    assert (short == tokens.PADDING).any() and (wanted[short == tokens.PADDING] == tokens.IGNORED).all()
    assert (long != tokens.PADDING).all()


@needs_library
@pytest.mark.parametrize("aligned", [True, False])
def test_gnmt_translates_lines_that_belong_together(tmp_path: Path, aligned: bool) -> None:
    source, target = ("\n".join(part) for part in zip(*PAIRS, strict=True))
    files = {"zen_en": source, "zen_rot": target} if aligned else SHIPPED["gnmt"]
    tiny = cell(write(tmp_path / "a", **files), "gnmt", tokens=60, name="en-rot" if aligned else None)
    (((read, before), wanted),) = loaded(tiny)
    assert (before[:, 0] == gnmt.START).all()
    # Behind the end of a translation nothing is to be told, and what comes before a word is the one that was wanted.
    for row, known, shifted in zip(wanted, texts_of(tmp_path / "kept", read), before, strict=True):
        written = row[row != tokens.IGNORED]
        assert written[-1] == tokens.END and torch.equal(shifted[1 : len(written)], written[:-1])
        (text,) = texts_of(tmp_path / "kept", written[None])
        assert (known, text) in PAIRS


@needs_library
@pytest.mark.parametrize("packed", [False, True])
def test_lstm_reads_a_text_to_its_last_word(tmp_path: Path, packed: bool) -> None:
    """Classes are the first fields of lines. Without packing, the network's state after the last place counts."""
    folder = write(tmp_path / "a", a_tsv="bad\tno\ngood\tyes\nbad\tnever\ngood\talways")
    (((words, lengths), classes),) = loaded(cell(folder, "lstm", "inference", packed=packed))
    assert sorted(classes.tolist()) == [0, 0, 1, 1]
    filled = (words != 0).any(-1)
    if packed:
        assert torch.equal(filled.sum(1), lengths) and filled[:, 0].all() and not filled[:, -1].any()
    else:
        assert filled[:, -1].all() and not filled[:, 0].any()


@needs_library
def test_training_reads_train_and_inference_test(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", train__a_txt="rat\n" * 30, test__a_txt="tar\n" * 30)
    for phase, word in (("train", "rat"), ("inference", "tar")):
        ((inputs, _),) = loaded(cell(folder, "gpt", phase, vocabulary=40, tokens=9))
        text = " ".join(texts_of(tmp_path / "kept", inputs))
        assert {"rat", "tar"} & set(text.split()) == {word}
    # The vocabulary is that of the training in both.
    assert len(list((tmp_path / "kept").glob("*"))) == 1


@needs_library
def test_a_class_has_one_number_in_train_and_test(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", train__a_txt="one two", train__b_txt="four six", test__b_txt="ten six\nsix ten")
    ((_, labels),) = loaded(cell(folder, "lstm", "inference", batch=2))
    assert labels.tolist() == [1, 1]
    # A model of one's own may not say how many there are.
    data, form = cell(folder, "lstm")["data"], tokens.TextForm("classified", 4, 2)
    assert len(tokens.read_samples(data, "train", form, SimpleNamespace(), 2, 0)) == 2


@needs_library
def test_a_text_may_be_one_long_line(tmp_path: Path) -> None:
    words = " ".join(f"{number:06d}" for number in range(200_000))
    ((inputs, _),) = loaded(cell(write(tmp_path / "a", a_txt=words), "gpt", tokens=9))
    assert texts_of(tmp_path / "kept", inputs[:1])[0] in words


@needs_library
def test_a_share_is_kept_for_inference(tmp_path: Path) -> None:
    lines = [f"{number:03d}" for number in range(100)]
    folder = write(tmp_path / "a", a_tsv="\n".join(f"{at % 2}\t{line}" for at, line in enumerate(lines)))
    sizes = {"packed": True, "test": 0.2}
    seen = {phase: {tuple(words.flatten().tolist()) for (words, _), _ in [
        sample for batch in [loaded(cell(folder, "lstm", phase, batch=count, **sizes))[0]]
        for sample in zip(zip(*batch[0], strict=True), batch[1], strict=True)]}
        for phase, count in (("train", 80), ("inference", 20))}  # fmt: skip
    assert not seen["train"] & seen["inference"]
    with pytest.raises(ConfigError, match="has 20 samples, 21 are needed"):
        loaded(cell(folder, "lstm", "inference", batch=21, **sizes))


@needs_library
def test_a_vocabulary_is_learnt_once_and_again_if_the_text_changes_or_the_file_is_damaged(tmp_path: Path) -> None:
    texts, kept = [line for line in ZEN if line], tmp_path / "kept"
    first = tokens.learn_vocabulary(texts, 150, kept)
    (path,) = kept.glob("*")
    made = path.read_bytes()
    age = path.stat().st_mtime_ns
    assert tokens.learn_vocabulary(texts, 150, kept).encode(texts[0]) == first.encode(texts[0])
    assert path.stat().st_mtime_ns == age and first.get_piece_size() == 150
    path.write_bytes(made[:1000])
    tokens.learn_vocabulary(texts, 150, kept)
    assert path.read_bytes() == made
    tokens.learn_vocabulary([*texts, "more"], 150, kept)
    tokens.learn_vocabulary(texts, 151, kept)
    assert len(list(kept.glob("*"))) == 3


FAULTS: dict[str, tuple[str, dict[str, str], dict[str, Any], str]] = {
    "empty": ("gpt", {"a_txt": "\n\n"}, {}, "holds no line of text"),
    "too few": ("gpt", {"a_txt": "one two three"}, {"vocabulary": 40},
                r"gpt: data\.root = '.*' has 0 samples, 2 are needed: add more, or lower samples, "),
    "signs": ("gpt", {"a_txt": "\u200b"}, {}, "sentencepiece learns no vocabulary from the texts .*: name others in data.root"),
    "small": ("gpt", {"a_txt": "\n".join(ZEN)}, {"vocabulary": 9},
              r"vocabulary = 9 has no room for the texts' characters: set vocabulary to \d\d or more"),
    "one class": ("lstm", {"a_txt": "one"}, {}, "the texts are of one class: name a folder"),
    "classes": ("lstm", {"a_txt": "one", "b_txt": "two", "c_txt": "six"}, {}, "set classes to 3"),
    "no pairs": ("gnmt", {"a_txt": "one\ntwo"}, {}, "'one' has 0 translations: give source and translation"),
    "one file": ("gnmt", {"a_en": "one"}, {"name": "en-de"}, r"a\.en has no a\.de beside it"),
    "ending": ("gnmt", {"a_txt": "one\ttwo"}, {"name": "en-de"}, r"holds no file that ends in \.en: data\.name = en-de takes"),
    "language": ("gnmt", {"a_en": "one"}, {"name": "en"}, "data.name = 'en' does not name two endings, such as en-de"),
    "alone": ("gnmt", {"a_en": "one", "a_de": "eins"}, {"name": "en-de", "root": "a.en"},
              r"'.*a\.en' is not a folder: data\.name = en-de takes"),
    "file": ("gpt", {"a_txt": "one"}, {"vocabulary": 40, "kept": "a/a.txt"}, r"data\.vocabulary = '.*a\.txt' cannot be written"),
    "lines": ("gnmt", {"a_en": "one", "a_de": "eins\nzwei"}, {"name": "en-de"}, r"have 1 and 2 lines"),
    "images": ("mobilenetv2", {"a_txt": "one"}, {}, "mobilenetv2 takes no texts: set data.source to folder"),
}  # fmt: skip


@needs_library
@pytest.mark.parametrize("fault", FAULTS)
def test_texts_that_do_not_fit_are_named(tmp_path: Path, fault: str) -> None:
    name, files, given, words = FAULTS[fault]
    folder = write(tmp_path / "a", **files)
    given = {**({"vocabulary": 150} if name in ("gpt", "gnmt") else {}), **given}
    data = {
        "source": "text",
        "root": str(folder / given.pop("root", "")),
        "vocabulary": str(tmp_path / given.pop("kept", "kept")),
        "name": given.pop("name", None),
    }
    with pytest.raises(ConfigError, match=words) as told:
        loaded(zoo.cell(name, data=data, **given))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("root", [None, "nowhere"])
def test_texts_that_are_not_there_are_named(root: str | None) -> None:
    with pytest.raises(ConfigError, match=f"gpt: data.root = {root!r} does not exist: name a text file or a folder"):
        loaded(zoo.cell("gpt", data={"source": "text", "root": root}))


def test_files_are_read_without_what_their_editors_leave(tmp_path: Path) -> None:
    """A mark of the byte order, ends of lines, and hidden files and folders; a line without its text is none."""
    (write(tmp_path, d__a_tsv="", _git__b="", d___c="") / "d" / "a.tsv").write_bytes(
        b"\xef\xbb\xbfx\tone\r\ny\t\r\nx\ttwo"
    )
    for hidden in (tmp_path / ".git" / "b", tmp_path / "d" / ".c"):
        hidden.write_bytes(b"\xff")
    assert [line.fields for line in tokens.read_lines(str(tmp_path), None)] == [("x", "one"), ("x", "two")]


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab\xff")
    with pytest.raises(ConfigError, match=r"a\.txt is no text in UTF-8 \(byte 3\): convert it"):
        tokens.read_lines(str(tmp_path), None)


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        ConfigError, match=r"needs sentencepiece, which is not installed: pip install 'profzoo\[text\]'"
    ):
        tokens.learn_vocabulary(["one"], 40, tmp_path)
