"""doctor, clean and document_config: what is missing with what to do, only the given files removed, one row a key."""

import os
from pathlib import Path

import pytest

from profzoo.cli import clean
from profzoo.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")


def files(under: str) -> list[str]:
    return sorted(str(path) for path in Path(under).rglob("*") if path.is_file())


def test_clean_removes_the_folder_itself_when_nothing_is_left() -> None:
    write("results/a/b/c.csv", "results/d.csv")
    clean.record_paths(["results/a/b/c.csv", "results/d.csv", "results/never_made.csv"])
    assert clean.remove_made("results") == "removed 2 files"
    assert not Path("results").exists() and clean.read_recorded_paths() == []


def test_clean_keeps_what_is_not_recorded() -> None:
    own = ["archive/2024.old.ncu-ranks/notes.txt", "mystuff/run1.nsys/precious.csv", "peaks/mygpu.csv", "unet/notes.md"]
    write(*(f"results/{name}" for name in own), "results/unet/train.time.csv", "results/lstm@mine/weights.pt")
    Path("results/empty/deep").mkdir(parents=True)
    clean.record_paths(["results/unet/train.time.csv"])
    clean.record_paths(["results/lstm@mine/weights.pt", "results/unet/train.time.csv"])
    assert clean.remove_made("results") == "removed 2 files; left 4 that the workflow did not make"
    assert files("results") == [f"results/{name}" for name in own]
    assert not Path("results/empty").exists() and not Path("results/lstm@mine").exists()


def test_clean_without_a_record_removes_nothing_and_says_so() -> None:
    write("results/lstm/train.time.csv")
    said = "removed 0 files; left 1 that the workflow did not make, because "
    assert clean.remove_made("results") == f"{said}.snakemake/profzoo/made.txt lists none under results"
    assert files("results") == ["results/lstm/train.time.csv"]


def test_clean_leaves_the_users_links_alone(folder: Path) -> None:
    write("results/a.csv", "elsewhere/b.csv", "elsewhere/c.csv")
    Path("results/link").symlink_to(folder / "elsewhere")
    Path("results/d.csv").symlink_to(folder / "elsewhere/c.csv")
    clean.record_paths(["results/a.csv", "results/link/b.csv", "results/d.csv"])
    clean.remove_made("results")
    assert Path("results/link").is_symlink() and files("elsewhere") == ["elsewhere/b.csv", "elsewhere/c.csv"]
    assert not Path("results/d.csv").is_symlink()


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


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 12, 13, 17, 18, 22, 23])
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


@pytest.mark.parametrize("damage", [b"\0" * 30, b'"results/a', b'"\xff"', b'"a\\u0000b"', b"results/a\0\0.csv"])
def test_lines_that_a_disk_has_lost_are_counted(damage: bytes) -> None:
    write("results/a.csv", "results/b.csv")
    clean.record_paths(["results/a.csv"])
    with clean.RECORD.open("ab") as file:
        file.write(damage + b"\n")
    said = "removed 1 file; left 1 that the workflow did not make; damaged lines of .snakemake/profzoo/made.txt"
    assert clean.remove_made("results") == f"{said}, which may have listed some: 1"
    assert clean.remove_made("results").startswith("removed 0 files; left 1 that the workflow did not make, because")


def test_clean_never_removes_the_results_folder_itself_nor_what_is_beside_it() -> None:
    write("results/own.txt", "beside.txt")
    clean.RECORD.parent.mkdir(parents=True)
    clean.RECORD.write_text("results\n.\n..\n/\nresults/.\nresults/../beside.txt\nresults/a/../../beside.txt\n")
    clean.remove_made("results")
    assert files(".")[-2:] == ["beside.txt", "results/own.txt"]


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


def test_models_without_results_are_said_with_the_nearest_that_has_some() -> None:
    there = "results has no files of lstm; no model has results there"
    assert clean.remove_made("results", ["lstm"]) == there and clean.describe_made("results", ["lstm"]) == [there]
    assert clean.describe_made("results") == ["results has no file that the workflow is known to have made"]
    made = made_of_two_models()
    assert clean.remove_made("results", ["lstm3"]).startswith("results has no files of lstm3; did you mean 'lstm")
    assert clean.remove_made("results", ["gpt"]).endswith("; valid are: lstm, lstm2, lstm@bf16")
    assert files("results") == sorted(made)


def test_models_are_those_that_the_command_line_names() -> None:
    assert clean.name_models({"tool": "nsys"}, ["a", "b"], removing=False) == []
    assert clean.name_models({"models": "a", "phases": "train"}, ["a"], removing=False) == ["a"]
    assert clean.name_models({"models": "a"}, ["a"], removing=True) == ["a"]
    with pytest.raises(ConfigError, match="phases and tool cannot be chosen here, only models"):
        clean.name_models({"models": "a", "phases": "train", "tool": "ncu"}, ["a"], removing=True)
