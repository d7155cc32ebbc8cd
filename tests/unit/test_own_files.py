"""FILES of a model, and what a process reads without declaring it: both are part of its jobs, and changes are named."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from profzoo.cell import data_files, registry, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError, UnusableError
from profzoo.harness import observed_files
from profzoo.records import digests, read_files
from profzoo.records.import_graph import PROJECT
from profzoo.records.read_files import ReadFiles

MODEL = """
{files}
WORKLOADS = {{"trimmed": {{"train": {{"batch": 4}}}}}}


def build(shape): ...
def sample(shape, generator): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "weights.pt").write_text("one")
    return tmp_path


def declared(folder: Path, name: str, files: str) -> registry.Model:
    (folder / f"{name}.py").write_text(MODEL.format(files=files))
    return registry.find_model("mine", name)


def summary(name: str) -> dict[str, Any]:
    checked = configuration.normalise_config({"settings": {"mine": {"module": name}}})
    return data_files.summarise_model_files(settings.resolve_cell("mine", "train", "time", checked))


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ('FILES = ("weights.pt",)', ["weights.pt"]),
        ('FILES = ["weights.pt", "more/*.npy"]', ["a.npy", "b.npy", "weights.pt"]),
        ('FILES: tuple[str, ...] = ("./more/a.npy",)', ["a.npy"]),
        ("", []),
    ],
)
def test_declared_files_are_inputs(folder: Path, files: str, names: list[str]) -> None:
    (folder / "more").mkdir()
    for name in ("a.npy", "b.npy", "c.txt"):
        (folder / "more" / name).write_text(name)
    model = declared(folder, f"files_{len(names)}{len(files)}", files)
    assert sorted(path.name for path in registry.declared_files(model)) == names
    assert {
        path.name for path in registry.source_files(model) if path.suffix != ".py" and folder in path.parents
    } == set(names)


def test_a_replaced_file_is_another_job_even_where_it_is_older(folder: Path) -> None:
    declared(folder, "weighted", 'FILES = ("weights.pt",)')
    before = summary("weighted")["model_files"]
    assert (before["count"], before["bytes"]) == (1, 3) and summary("weighted")["model_files"] == before
    (folder / "weights.pt").write_text("two")
    os.utime(folder / "weights.pt", ns=(0, 0))
    assert summary("weighted")["model_files"]["digest"] != before["digest"]


def test_a_missing_file_is_one_line(folder: Path) -> None:
    model = declared(folder, "lacking", 'FILES = ("weights.pt", "wieghts.pt")')
    for asked in (registry.declared_files, registry.source_files):
        with pytest.raises(UnusableError) as error:
            asked(model)
        assert str(error.value) == (
            f"{folder}/lacking.py: model 'mine' names 'wieghts.pt' in FILES, and there is no such file in {folder}: put it "
            "there, or correct the name"
        )


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ("FILES = 3", "FILES = 3 is not a tuple or list"),
        ("FILES = (3,)", "FILES holds 3, which is not a path from the folder of the model's file"),
        ('FILES = ("/data/w.pt",)', "FILES holds '/data/w.pt', which is not a path from the folder"),
        ("FILES = (PATH,)", "FILES must be a literal"),
    ],
)
def test_files_of_another_form_are_one_line(folder: Path, files: str, says: str) -> None:
    with pytest.raises(UnusableError, match=r"of_other_form\.py: ") as error:
        declared(folder, "of_other_form", files)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_name_of_the_zoo_is_refused_with_both_files(folder: Path) -> None:
    declared(folder, "mylstm", "")
    with pytest.raises(ConfigError) as error:
        registry.find_model("lstm", "mylstm")
    assert f"{folder}/mylstm.py would take the name of the zoo's {registry.ZOO}/lstm.py" in str(error.value)
    assert "\n" not in str(error.value) and "such as my_lstm" in str(error.value)
    assert registry.find_model("lstm", "models.lstm").path == registry.ZOO / "lstm.py"


OBSERVED = """
import sys
sys.path.insert(0, {project!r})
from profzoo.harness import observed_files
observed_files.observe_process()
"""


def observe(folder: Path, program: str, **variables: str) -> ReadFiles:
    """What a program is seen to read that runs in a folder; the notes lie in a folder of their own."""
    notes = folder.parent / "making" / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, observed_files.NOTES: str(notes), "HOME": str(folder.parent / "home"), **variables}
    text = OBSERVED.format(project=str(PROJECT)) + program
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_files.describe_notes(read_files.read_notes(notes))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    (tmp_path / "home" / ".cache").mkdir(parents=True)
    for name in ("a.txt", "data/b.txt", "data/c.txt", "module.py"):
        (work / name).write_text("1\n")
    monkeypatch.chdir(work)
    digests.forget_digests()
    return work


ONE = f"sha256:{digests.text_digest(chr(49) + chr(10)).removeprefix('sha256:')}"
# Of each program, what it reads and what it writes.
PROGRAMS: Mapping[str, tuple[str, Mapping[str, str | Sequence[str]], Sequence[str]]] = {
    "opened": ("open('a.txt')", {"a.txt": ONE}, []),
    "opened by its number": ("import os; os.read(os.open('a.txt', os.O_RDONLY), 1)", {"a.txt": ONE}, []),
    "opened from another folder": ("import os; os.chdir('data'); open('../a.txt'); open('b.txt')",
                                   {"a.txt": ONE, "data/b.txt": ONE}, []),
    "looked for": ("import contextlib\nwith contextlib.suppress(OSError): open('none.txt')", {"none.txt": "absent"}, []),
    "imported, with and without bytecode": ("import sys, importlib; sys.path.insert(0, '.'); import module\n"
                                            "importlib.reload(module)", {"module.py": ONE}, []),
    "in a fork that is killed": ("import os\nif os.fork(): os.wait()\nelse: open('a.txt'); os.kill(os.getpid(), 9)",
                                 {"a.txt": ONE}, []),
    "in a thread": ("import threading; one = threading.Thread(target=open, args=['a.txt']); one.start(); one.join()",
                    {"a.txt": ONE}, []),
    "listed": ("import os; os.listdir('data')", {"data": ["b.txt", "c.txt"]}, []),
    "listed by pathlib": ("from pathlib import Path; list(Path('data').glob('*'))", {"data": ["b.txt", "c.txt"]}, []),
    "listed, to find modules": ("import importlib.util, pkgutil, sys; sys.path.insert(0, 'data')\n"
                                "importlib.util.find_spec('x'); list(pkgutil.iter_modules(['data']))", {}, []),
    "listed, to find packages": ("from profzoo.machine import external_programs\n"
                                 "external_programs.find_packages(['data'], [])", {}, []),
    "written": ("open('new.txt', 'w').write('1'); open('new.txt').read(); open('a.txt', 'r+').write('2')", {},
                ["a.txt", "new.txt"]),
    "replaced and removed": ("import os; open('x', 'w'); open('a.txt'); os.replace('x', 'a.txt'); open('data/b.txt')\n"
                             "os.remove('data/b.txt')", {}, ["a.txt", "data/b.txt", "x"]),
    "listed where it writes": ("import os; os.listdir('data'); open('data/log.txt', 'w'); open('data/b.txt')",
                               {"data/b.txt": ONE}, ["data/log.txt"]),
    "removed as a tree": ("import shutil, os; os.makedirs('data/more'); open('data/more/a.txt', 'w').close()\n"
                          "shutil.rmtree('data/more'); open('a.txt')", {"a.txt": ONE}, ["data/more", "data/more/a.txt"]),
    "of the system and of others": ("import json, os, sys; open('/proc/self/stat'); open(json.__file__); open(os.devnull)\n"
                                    "os.listdir(os.path.expanduser('~/.cache'))\n"
                                    "import yaml; open(yaml.__file__)", {}, []),
    "mapped": ("import mmap, os\nfile = os.open('a.txt', os.O_RDONLY); mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)\n"
               "observed_files.note_files_in_use()", {"a.txt": ONE}, []),
    "open when the process began": ("import os; observed_files.OPEN('a.txt', os.O_RDONLY)\n"
                                    "observed_files.note_files_in_use()", {"a.txt": ONE}, []),
    "open to be written, such as a lock of the job's": ("import os; observed_files.OPEN('a.txt', os.O_RDWR)\n"
                                                        "observed_files.note_files_in_use()", {}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_process_reads_and_writes_is_seen(work: Path, name: str) -> None:
    program, read, written = PROGRAMS[name]
    found = observe(work, program)
    assert found == ReadFiles(read, tuple(written))


def test_a_package_counts_by_its_version_wherever_it_is_installed(work: Path) -> None:
    """As by `pip install --target`; modules that lie in a folder without packages are files like others."""
    for folder in ("packages", "modules"):
        (work.parent / folder).mkdir()
        (work.parent / folder / f"of_{folder}.py").write_text("1\n")
    (work.parent / "packages" / "of_packages-1.0.dist-info").mkdir()
    path = ":".join(str(work.parent / folder) for folder in ("packages", "modules"))
    found = observe(work, "import of_packages, of_modules", PYTHONPATH=path)
    assert {Path(name).name for name in found.read} == {"of_modules.py"}


def test_a_file_that_others_change_meanwhile_is_named(work: Path) -> None:
    change = "import subprocess; open('a.txt').close(); subprocess.run(['sh', '-c', 'echo 2 >> a.txt'])"
    assert observe(work, change).changed == ("a.txt",)


def test_many_files_of_a_folder_are_known_by_size_and_time(work: Path) -> None:
    """A change of time alone counts, as the files are not read again; the module among them is known by itself."""
    for number in range(observed_files.MOST_IN_FOLDER):
        (work / "data" / f"{number}.txt").write_text("1\n")
    (work / "data" / "part.py").write_text("1\n")
    found = observe(work, "import os\nfor name in sorted(os.listdir('data')): open(f'data/{name}').close()")
    assert set(found.read) == {"data", "data/part.py"} and str(found.read["data"]).startswith(
        "67 files by size and time"
    )
    assert list(read_files.find_changes(found.read)) == []
    os.utime(work / "data" / "7.txt", ns=(0, 0))
    assert list(read_files.find_changes(found.read)) == [
        ("data", "files in data, which it read, have changed (many are known by size and time)")
    ]


def test_of_a_folder_with_many_names_a_digest_is_kept(work: Path) -> None:
    for number in range(read_files.MOST_NAMES):
        (work / "data" / f"{number}").touch()
    found = observe(work, "import os; os.listdir('data')")
    assert str(found.read["data"]).startswith("102 names: sha256:")
    (work / "data" / "0").rename(work / "data" / "00")
    assert list(read_files.find_changes(found.read)) == [("data", "data, which it listed, has changed")]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"a.txt": ONE}, "", []),
        ({"a.txt": ONE}, "echo 2 > a.txt", ["a.txt, which it read, has changed"]),
        ({"a.txt": ONE}, "rm a.txt", ["a.txt, which it read, is gone"]),
        ({"a.txt": ONE}, "rm a.txt; mkdir a.txt", ["a.txt, which it read, has changed"]),
        ({"x": "absent"}, "touch x", ["x, which it looked for, is new"]),
        ({"data": ["b.txt", "c.txt"]}, "touch data/.hidden; mkdir data/__pycache__", []),
        ({"data": ["b.txt", "c.txt"]}, "mv data/b.txt data/d.txt",
         ["data/d.txt is new in a folder that it listed", "data/b.txt is gone in a folder that it listed"]),
        ({"data": ["b.txt", "c.txt"]}, "rm -r data", ["data, which it read, is gone"]),
        ({".": ["a.txt", "data", "module.py"]}, "mkdir results runs", []),
        ({"a.txt": f"{read_files.LARGE_BYTES + 1} bytes, changed at 5 ns"}, "",
         ["a.txt, which it read, has changed (a large file is known by size and time)"]),
    ],
)  # fmt: skip
def test_each_change_is_named(work: Path, then: dict[str, str | list[str]], now: str, said: list[str]) -> None:
    subprocess.run(["sh", "-c", now], check=True)
    assert [words for _, words in read_files.find_changes(json.loads(json.dumps(then)))] == said
    # What a job of the same cell writes is not an input of it.
    assert list(read_files.find_changes(then, lambda: [*then, "data/d.txt", "data/b.txt"])) == []
