"""doctor, clean and document_config: what is missing with what to do, only the given files removed, one row a key."""

import os
from pathlib import Path

import pytest

from profzoo import clean, doctor, schema
from profzoo.cell import settings
from profzoo.cell.registry import find_model
from profzoo.config import configuration as config
from profzoo.document import config as document_config
from profzoo.errors import ConfigError
from profzoo.machine import external_programs
from profzoo.machine.doctor_checks import Finding
from profzoo.tools.ncu import doctor as ncu_doctor
from profzoo.tools.nsys import doctor as nsys_doctor
from profzoo.tools.torch import doctor as torch_doctor

OLD = (
    "driver 535.54 is too old for CUDA 13.0, which needs 580 or later: update the driver, or install torch 2.8 to 2.10, "
    "which PyPI has for CUDA 12 (`make env CUDA=12`)"
)
STANDINS = Path(__file__).parents[1] / "tools/standins"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A PATH without any tool."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("check", "found", "advice"),
    [
        (doctor.check_gpu, "none (nvidia-smi is not on PATH)", "profile on the CPU"),
        (doctor.check_driver, "none", "install the NVIDIA driver"),
        (ncu_doctor.check_program, "not on PATH", "install NVIDIA Nsight Compute"),
        (nsys_doctor.check_program, "not on PATH", "install NVIDIA Nsight Systems"),
        (ncu_doctor.check_counters, "not checked, because this needs ncu and a GPU", "see ncu and GPU above"),
        (nsys_doctor.check_importer, "not checked, because this needs nsys", "see nsys above"),
    ],
)
def test_every_lack_has_its_advice(check, found: str, advice: str) -> None:
    finding = check()
    assert finding.found == found and advice in (finding.advice or "")


def test_nothing_is_advised_where_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    findings = [doctor.check_gpu(), doctor.check_driver(), ncu_doctor.check_program(), nsys_doctor.check_nvtx()]
    assert [finding.advice for finding in findings] == [None] * 4
    assert findings[0].found == "NVIDIA H200, 143771 MiB" and findings[1].found.startswith("580.159.04 (this torch")


def standin(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """An nvidia-smi first in PATH."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("torch", "advice"),
    [
        ("2 13.0 False 0", OLD),
        # By a package for forward compatibility.
        ("2 13.0 True 1", None),
        ("2 12.8 False 0", None),
    ],
)
def test_an_old_driver_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, torch: str, advice: str | None) -> None:
    standin(tmp_path, monkeypatch, "echo 'NVIDIA A100, 535.54, GPU-a, 40960 MiB'")
    monkeypatch.setattr(torch_doctor, "VERSIONS", f"print({torch!r})")
    cuda = torch.split()[1]
    needed = {"13.0": 580, "12.8": 525}[cuda]
    told = f"535.54 (this torch, for CUDA {cuda}, needs {needed} or later)"
    assert doctor.check_driver() == Finding("driver", told, advice)


@pytest.mark.parametrize(
    ("body", "visible", "found"),
    [
        (
            "echo 'NVIDIA-SMI has failed because'; exit 9",
            None,
            "none (nvidia-smi fails: NVIDIA-SMI has failed because)",
        ),
        ("echo 'NVIDIA A100, 1, GPU-a, 1 MiB'", "-1", "none (CUDA_VISIBLE_DEVICES = '-1' hides 1)"),
        ("echo 'A, 1, GPU-a, 1 MiB'; echo 'B, 1, GPU-b, 1 MiB'", "1", "not known"),
        ("exec sleep 60", None, "not known"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, visible: str | None, found: str
) -> None:
    standin(tmp_path, monkeypatch, body)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    answer = external_programs.ask_program
    monkeypatch.setattr(
        external_programs, "ask_program", lambda command, seconds=60, **more: answer(command, 0.5, **more)
    )
    finding = doctor.check_gpu()
    assert finding.found == found and finding.advice
    assert doctor.check_driver().found == "none" and ncu_doctor.check_counters().found.startswith("not checked")


def test_a_torch_that_does_not_import_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = torch_doctor.check_torch()
    assert finding == Finding("torch", "does not import: ImportError: libcudart.so is missing", "make env")


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        ("2 None False 0", "install a torch built with CUDA"),
        ("2 13.0 False 0", "CUDA 13.0 needs driver 580 or later"),
        ("2 99.1 False 0", "CUDA 99.1 needs a driver that is new enough"),
        ("2 13.0 True 4", None),
    ],
)
def test_a_torch_without_cuda_is_said(monkeypatch: pytest.MonkeyPatch, facts: str, advice: str | None) -> None:
    monkeypatch.setattr(torch_doctor, "VERSIONS", f"print({facts!r})")
    finding = torch_doctor.check_torch()
    assert (finding.advice is None) if advice is None else advice in (finding.advice or "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*names: str) -> None:
    """Files in the working folder."""
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")


def files(under: str) -> list[str]:
    return sorted(str(path) for path in Path(under).rglob("*") if path.is_file())


@pytest.mark.usefixtures("folder")
def test_clean_removes_the_folder_itself_when_nothing_is_left() -> None:
    write("results/a/b/c.csv", "results/d.csv")
    clean.record_paths(["results/a/b/c.csv", "results/d.csv", "results/never_made.csv"])
    assert clean.remove_made("results") == "removed 2 files"
    assert not Path("results").exists() and clean.read_recorded_paths() == []


@pytest.mark.usefixtures("folder")
def test_clean_keeps_what_is_not_recorded() -> None:
    """Whatever it looks like."""
    own = ["archive/2024.old.ncu-ranks/notes.txt", "mystuff/run1.nsys/precious.csv", "peaks/mygpu.csv", "unet/notes.md"]
    write(*(f"results/{name}" for name in own), "results/unet/train.time.csv", "results/lstm@mine/weights.pt")
    Path("results/empty/deep").mkdir(parents=True)
    clean.record_paths(["results/unet/train.time.csv"])
    clean.record_paths(["results/lstm@mine/weights.pt", "results/unet/train.time.csv"])
    assert clean.remove_made("results") == "removed 2 files; left 4 that the workflow did not make"
    assert files("results") == [f"results/{name}" for name in own]
    assert not Path("results/empty").exists() and not Path("results/lstm@mine").exists()


@pytest.mark.usefixtures("folder")
def test_clean_removes_recorded_folders_with_all_that_is_in_them() -> None:
    write("results/bert@two/train.nsys-ranks/host.0.nsys-rep", "results/bert@two/train.nsys-ranks/.snakemake_timestamp")
    clean.record_paths(["results/bert@two/train.nsys-ranks"])
    assert clean.remove_made("results") == "removed 2 files" and not Path("results").exists()


@pytest.mark.usefixtures("folder")
def test_clean_leaves_other_folders_of_results_and_their_record() -> None:
    write("results/a.csv", "results2/a.csv")
    clean.record_paths(["results/a.csv", "results2/a.csv"])
    assert clean.remove_made("results") == "removed 1 file" and files("results2") == ["results2/a.csv"]
    assert clean.remove_made("results2") == "removed 1 file" and not Path("results2").exists()


@pytest.mark.usefixtures("folder")
def test_clean_without_a_record_removes_nothing_and_says_so() -> None:
    write("results/lstm/train.time.csv")
    said = "removed 0 files; left 1 that the workflow did not make, because "
    assert clean.remove_made("results") == f"{said}.snakemake/profzoo/made.txt lists none under results"
    assert files("results") == ["results/lstm/train.time.csv"]


@pytest.mark.usefixtures("folder")
def test_clean_of_nothing() -> None:
    assert clean.remove_made("results") == "removed 0 files" and not Path("results").exists()


def test_clean_leaves_the_users_links_alone(folder: Path) -> None:
    write("results/a.csv", "elsewhere/b.csv", "elsewhere/c.csv")
    Path("results/link").symlink_to(folder / "elsewhere")
    Path("results/d.csv").symlink_to(folder / "elsewhere/c.csv")
    clean.record_paths(["results/a.csv", "results/link/b.csv", "results/d.csv"])
    clean.remove_made("results")
    assert Path("results/link").is_symlink() and files("elsewhere") == ["elsewhere/b.csv", "elsewhere/c.csv"]
    assert not Path("results/d.csv").is_symlink()


def test_results_may_be_a_link_themselves(folder: Path) -> None:
    write("scratch/lstm/a.csv")
    Path("results").symlink_to(folder / "scratch")
    clean.record_paths(["results/lstm/a.csv"])
    assert clean.remove_made("results").startswith("removed 1 file") and files("scratch") == []


def test_results_are_known_by_any_path_that_leads_to_them(folder: Path, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "link").symlink_to(elsewhere)
    for made, cleaned in (
        (f"{elsewhere}/results", f"{elsewhere}/results"),
        (f"{folder}/results", f"{folder}/results"),
        (f"{folder}/results", "results"),
        ("results", f"{folder}/results"),
        ("runs/../results", "results"),
        ("runs/../results", "runs/../results"),
        # Not the folder `results` here: a link comes before.
        (f"link/../{elsewhere.name}/results", f"{elsewhere}/results"),
        ("link/results", f"{elsewhere}/results"),
        ("./results/", "results"),
        (f"../{folder.name}/results", "results"),
    ):
        Path("runs").mkdir(exist_ok=True)
        write(f"{made}/lstm/a.csv", f"{made}/lstm/own.txt")
        clean.record_paths([f"{made}/lstm/a.csv"])
        assert clean.remove_made(cleaned) == "removed 1 file; left 1 that the workflow did not make", (made, cleaned)
        assert not Path(made, "lstm/a.csv").exists() and clean.read_recorded_paths() == []
        Path(made, "lstm/own.txt").unlink()


@pytest.mark.usefixtures("folder")
def test_a_folder_that_only_looks_like_the_results_is_no_part_of_them(tmp_path_factory) -> None:
    """`link/../results` is beside what the link leads to, and not the folder of that name here."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "in"
    elsewhere.mkdir()
    Path("link").symlink_to(elsewhere)
    write("results/lstm/a.csv", "link/../results/lstm/a.csv")
    clean.record_paths(["link/../results/lstm/a.csv"])
    assert clean.remove_made("results").startswith("removed 0 files; left 1 ")
    assert clean.remove_made("link/../results") == "removed 1 file" and files("results") == ["results/lstm/a.csv"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "name", ["a\nb.csv", "a\x85b\u2028.csv", '"a".csv', os.fsdecode(b"\xff\xfe.csv"), "é\r.csv", " "]
)
def test_clean_knows_files_of_any_name(name: str) -> None:
    write(f"results/{name}", "results/b.csv")
    for _ in range(2):
        clean.record_paths([f"results/{name}", "results/b.csv"])
    assert clean.read_recorded_paths() == [f"results/{name}", "results/b.csv"]
    clean.record_paths(["other.csv"])
    assert clean.remove_made("results") == "removed 2 files" and clean.read_recorded_paths() == ["other.csv"]


@pytest.mark.usefixtures("folder")
def test_a_record_that_is_no_text_is_read() -> None:
    write("results/a.csv", "results/b.csv")
    clean.record_paths(["results/a.csv"])
    clean.RECORD.write_bytes(b"\xc3\x28\xff\n" + clean.RECORD.read_bytes())
    clean.record_paths(["results/b.csv"])
    assert clean.remove_made("results") == "removed 2 files"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("cut", range(len("results/lstm/mine/b.csv\n")))
def test_a_run_killed_as_it_adds_to_the_record_costs_nothing(cut: int) -> None:
    """Neither what later runs make, nor a folder of the user's that the line reads like where it is cut off."""
    own = ["results/lstm/mine/own.txt", "results/lstm/own.txt", "results/own.txt"]
    write("results/a.csv", "results/c.csv", *own)
    clean.record_paths(["results/a.csv"])
    with clean.RECORD.open("ab") as file:
        file.write(b"results/lstm/mine/b.csv\n"[:cut])
    assert clean.read_recorded_paths() == ["results/a.csv"]
    clean.record_paths(["results/c.csv"])
    assert clean.read_recorded_paths() == ["results/a.csv", "results/c.csv"]
    clean.remove_made("results")
    assert files("results") == sorted(own)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("damage", [b"\0" * 30, b'"results/a', b'"\xff"', b'"a\\u0000b"', b"results/a\0\0.csv"])
def test_lines_that_a_disk_has_lost_are_counted(damage: bytes) -> None:
    write("results/a.csv", "results/b.csv")
    clean.record_paths(["results/a.csv"])
    with clean.RECORD.open("ab") as file:
        file.write(damage + b"\n")
    said = "removed 1 file; left 1 that the workflow did not make; damaged lines of .snakemake/profzoo/made.txt"
    assert clean.remove_made("results") == f"{said}, which may have listed some: 1"
    assert clean.remove_made("results").startswith("removed 0 files; left 1 that the workflow did not make, because")


@pytest.mark.usefixtures("folder")
def test_clean_never_removes_the_results_folder_itself_nor_what_is_beside_it() -> None:
    write("results/own.txt", "beside.txt")
    clean.RECORD.parent.mkdir(parents=True)
    clean.RECORD.write_text("results\n.\n..\n/\nresults/.\nresults/../beside.txt\nresults/a/../../beside.txt\n")
    clean.remove_made("results")
    assert files(".")[-2:] == ["beside.txt", "results/own.txt"]


@pytest.mark.usefixtures("folder")
def test_a_record_that_has_no_room_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    clean.record_paths(["results/a.csv"])
    written = iter([5])
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        for many in written:
            return real(descriptor, data[:many])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(clean.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        clean.record_paths(["results/b.csv"])
    assert clean.RECORD.read_bytes() == b"results/a.csv\n"


def keys(part: dict, prefix: str = "") -> list[str]:
    """Every key of a schema."""
    found = []
    for key, value in part["properties"].items():
        found += [f"`{prefix}{key}`", *(keys(value, f"{prefix}{key}.") if "properties" in value else [])]
    return found


def test_the_page_has_one_row_a_key() -> None:
    rows = list(document_config.list_keys(schema.load_schema()))
    assert [row[0] for row in rows] == keys(schema.load_schema()) and all(row[1] and row[3] for row in rows)
    lines = [
        line for line in document_config.write_config_page(schema.load_schema()).splitlines() if line.startswith("| `")
    ]
    columns = {line.count("|") for line in lines[: len(rows)]}
    assert columns == {5} and len(lines) > len(rows)


# Sources of settings that the page names, with what gives a `batch` there; the defaults and the model's file always do.
LEVELS = {
    "the defaults below": None,
    "the model's file": None,
    "the top level of the configuration": lambda value: {"batch": value},
    "`settings` of the model": lambda value: {"settings": {"lstm": {"batch": value}}},
    "the variant": lambda value: {"variants": {"mine": {"batch": value}}},
}


def batch(given: dict) -> int:
    """The batch of a cell with a variant `mine`."""
    return settings.resolve_cell(
        "lstm@mine", "train", "time", config.normalise_config({"variants": {"mine": {}}} | given)
    )["batch"]


def test_the_page_says_in_which_order_settings_count() -> None:
    text = " ".join(document_config.write_config_page(schema.load_schema()).split())
    sentence = text.partition("the last one in this list counts: ")[2].partition("Names of models")[0]
    assert all(level in sentence for level in LEVELS), sentence
    order = sorted(LEVELS, key=sentence.index)
    own = find_model("lstm").workloads["trimmed"]["train"]["batch"]
    # The schema's default is null, over which the file's own counts.
    assert batch({}) == own and order.index("the defaults below") < order.index("the model's file")
    settable = {level: give for level, give in LEVELS.items() if give}
    for level, give in settable.items():
        assert (batch(give(own + 1)) == own + 1) == (order.index(level) > order.index("the model's file")), level
        for other, more in settable.items():
            if level != other:
                last = max(level, other, key=order.index)
                assert batch(give(own + 1) | more(own + 2)) == (own + 1 if last == level else own + 2), (level, other)


def made_of_two_models() -> list[str]:
    """Write and record results of two models and a variant, their logs, and a table of both."""
    made = [
        "results/lstm/weights.pt", "results/lstm/.records/train.csv.json", "results/lstm@bf16/train.time.csv",
        "results/logs/lstm/weights.log", "results/benchmarks/lstm@bf16/train.time.tsv", "results/lstm2/weights.pt",
        "results/logs/lstm2/weights.log", "results/tables/cells.csv", "results/report.html",
    ]  # fmt: skip
    write(*made)
    clean.record_paths([*made, "results/lstm/never_made.csv"])
    return made


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("models", "removed"), [(["lstm"], 5), (["lstm@bf16"], 2), (["lstm2"], 2), (["lstm2", "lstm"], 7)]
)
def test_clean_of_models_leaves_other_models_and_what_all_share(models: list[str], removed: int) -> None:
    made = made_of_two_models()
    write("results/lstm/own.txt", "results/unet/own.txt")
    listed = [str(path) for paths in clean.find_made("results", models).values() for path in paths]
    own = "; left 1 that the workflow did not make" if "lstm" in models else ""
    assert clean.remove_made("results", models) == f"removed {removed} files of {', '.join(models)}{own}"
    kept = set(made) - set(listed)
    assert len(listed) == removed and set(files("results")) == kept | {"results/lstm/own.txt", "results/unet/own.txt"}
    # The rest is still known.
    assert clean.remove_made("results") == f"removed {len(kept)} files; left 2 that the workflow did not make"


@pytest.mark.usefixtures("folder")
def test_what_clean_would_remove_is_listed_with_its_size() -> None:
    made_of_two_models()
    write(
        "results/lstm/own.txt", "results/bert/train.nsys-ranks/a.nsys-rep", "results/bert/train.nsys-ranks/b.nsys-rep"
    )
    clean.record_paths(["results/bert/train.nsys-ranks"])
    Path("results/lstm2/weights.pt").write_bytes(b"x" * 1_500_000)
    before = files(".")
    assert clean.describe_made("results") == [
        "would remove 11 files of results, 1.5 MB:",
        "  lstm2             2 files     1.5 MB",
        "  lstm              3 files    3 bytes",
        "  bert              2 files    2 bytes",
        "  lstm@bf16         2 files    2 bytes",
        "  report.html        1 file    1 bytes",
        "  tables             1 file    1 bytes",
    ]
    assert clean.describe_made("results", ["bert"])[0] == "would remove 2 files of results, 2 bytes:"
    assert files(".") == before


@pytest.mark.usefixtures("folder")
def test_models_without_results_are_said_with_the_nearest_that_has_some() -> None:
    there = "results has no files of lstm; no model has results there"
    assert clean.remove_made("results", ["lstm"]) == there and clean.describe_made("results", ["lstm"]) == [there]
    assert clean.describe_made("results") == ["results has no file that the workflow is known to have made"]
    made = made_of_two_models()
    assert clean.remove_made("results", ["lstm3"]).startswith("results has no files of lstm3; did you mean 'lstm")
    assert clean.remove_made("results", ["gpt"]).endswith("; valid are: lstm, lstm2, lstm@bf16")
    assert files("results") == sorted(made)


@pytest.mark.usefixtures("folder")
def test_clean_of_a_model_leaves_what_links_lead_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine.csv").write_text("x")
    Path("results").mkdir()
    Path("results/lstm").symlink_to(elsewhere)
    clean.record_paths(["results/lstm/mine.csv"])
    assert clean.find_made("results", ["lstm"]) == {}
    clean.remove_made("results", ["lstm"])
    assert (elsewhere / "mine.csv").exists() and Path("results/lstm").is_symlink()


def test_models_are_those_that_the_command_line_names() -> None:
    assert clean.name_models({"tool": "nsys"}, ["a", "b"], removing=False) == []
    assert clean.name_models({"models": "a", "phases": "train"}, ["a"], removing=False) == ["a"]
    assert clean.name_models({"models": "a"}, ["a"], removing=True) == ["a"]
    with pytest.raises(ConfigError, match="phases and tool cannot be chosen here, only models"):
        clean.name_models({"models": "a", "phases": "train", "tool": "ncu"}, ["a"], removing=True)
