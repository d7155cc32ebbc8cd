"""data_files: any change of a file changes the digest, nothing else does; folders that are not there are named."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from profzoo.cell import data_files
from profzoo.errors import ConfigError


def cell(root: object, source: str = "folder", name: str | None = None) -> dict:
    return {"model": "mine", "data": {"source": source, "name": name, "root": root and str(root), "arguments": {}}}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Files of two labels, one folder being a link, and a link to nothing."""
    for path, text in {"set/a/1.png": "one", "set/a/2.png": "two", "elsewhere/3.png": "three"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "set" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "none.png").symlink_to("nowhere")
    return tmp_path / "set"


def summed(root: Path) -> dict:
    data_files._summed.cache_clear()
    return data_files.summarise_data_set(cell(root))["data_files"]


def again(path: Path, text: str) -> None:
    """The file with another content of the same length, a nanosecond younger."""
    facts = path.stat()
    path.write_text(text)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))


def test_what_there_is_adds_up(images: Path) -> None:
    told = summed(images)
    assert (told["count"], told["bytes"]) == (4, len("onetwothree")) and len(told["digest"]) == 32
    assert summed(images) == told == summed(Path(os.path.relpath(images)))


@pytest.mark.parametrize(
    "change",
    [
        lambda root: again(root / "a" / "1.png", "ONE"),
        lambda root: again(root / "b" / "3.png", "THREE"),
        lambda root: (root / "a" / "1.png").rename(root / "a" / "0.png"),
        lambda root: (root / "a" / "1.png").rename(root / "b" / "1.png"),
        lambda root: (root / "a" / "2.png").unlink(),
        lambda root: (root / "none.png").unlink(),
        lambda root: (root / "b" / "new.png").write_text("new"),
    ],
)  # fmt: skip
def test_any_change_of_a_file_is_seen(images: Path, change: Callable[[Path], object]) -> None:
    before = summed(images)
    change(images)
    assert summed(images)["digest"] != before["digest"]


def test_a_link_back_ends(images: Path) -> None:
    before = summed(images)
    (images / "a" / "round").symlink_to(images)
    assert summed(images) == before


def test_a_copy_that_keeps_times_is_the_same(images: Path, tmp_path: Path) -> None:
    before = summed(images)
    images.rename(tmp_path / "moved")
    assert summed(tmp_path / "moved") == before


def test_a_file_of_texts_may_stand_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    given = cell(tmp_path / "a.txt", "text")
    before = data_files.summarise_data_set(given)["data_files"]
    again(tmp_path / "a.txt", "two")
    data_files._summed.cache_clear()
    after = data_files.summarise_data_set(given)["data_files"]
    assert (before["count"], before["bytes"]) == (after["count"], after["bytes"]) == (1, 3)
    assert before["digest"] != after["digest"]


@pytest.mark.parametrize("made_up", [cell("/nowhere", "synthetic"), cell(None, "dataset", "FakeData")])
def test_samples_that_are_made_up_have_no_files(made_up: dict) -> None:
    assert data_files.summarise_data_set(made_up) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (cell(None), "mine: data.root = None is not a folder: name the one that holds your images"),
        (cell("/nowhere"), "mine: data.root = '/nowhere' is not a folder"),
        (cell("/nowhere", "text"), "mine: data.root = '/nowhere' does not exist: name a text file or a folder"),
        (cell("/nowhere", "dataset", "MNIST"), "name the one that holds MNIST"),
    ],
)
def test_a_folder_that_is_not_there(given: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        data_files.summarise_data_set(given)
