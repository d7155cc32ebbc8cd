"""What results were measured with, beside what is installed; in the terminal, in tables, and on the page."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from profzoo.collect import version_changes
from profzoo.machine import external_programs
from profzoo.records.import_graph import PROJECT
from profzoo.report import overview
from profzoo.tables import across_cells
from profzoo.tools import tool_versions as of_tools
from tests.unit.test_page import CELL, rendered

NSYS, NCU = "NVIDIA Nsight Systems version {}-253236389321v0", "Version {} (build 36398880) (public-release)"


def facts(tool: str, torch: str, **more: str) -> dict[str, str]:
    return {"tool": tool, "torch": torch, "tool_version": f"torch {torch}", **more}


def collected(results: Path, name: str, tool: str, torch: str = "2.9.0", **more: str) -> Path:
    """A file of that name with its sidecar; the sidecar's path."""
    path = results / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    sidecar = path.with_name(f"{path.name}.json")
    sidecar.write_text(json.dumps({**facts(tool, torch, **more), "started": "2026-11-20T10:00:00+00:00"}))
    return sidecar


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Of `a` all is of older versions; of `b` the trace of nsys; of `c` nothing."""
    old = {"torch": "2.8.0", "driver": "570.1"}
    collected(tmp_path, "a/train.time.csv", "time", **old)
    collected(tmp_path, "a/train.trace.json.gz", "torch", **old)
    collected(tmp_path, "a/train.nsys-rep", "nsys", **old, tool_version=NSYS.format("2025.1.1.2"))
    # What is made of it carries its facts.
    collected(tmp_path, "a/train.nsys.csv", "nsys", **old, tool_version=NSYS.format("2025.1.1.2"))
    collected(tmp_path, "b/train.time.csv", "time", driver="580.1")
    collected(tmp_path, "b/train.nsys-rep", "nsys", driver="580.1", tool_version=NSYS.format("2025.1.1.2"))
    collected(tmp_path, "b/train.roofline.ncu-rep", "ncu", driver="580.1", tool_version=NCU.format("2025.3.1.0"))
    # Of a CPU there is no driver.
    collected(tmp_path, "c/train.time.csv", "time")
    collected(tmp_path, "c/weights.pt", "train", torch="1.0")
    (tmp_path / "c/train.timeline.json").write_text('{"tool": "nsys", "started": 0}')
    (tmp_path / "c/train.nsys-rep.json").write_text("damaged")
    (tmp_path / "c/train.nsys-rep").write_text("")
    return tmp_path


NOW = {"torch": "2.9.0", "driver": "580.1", "nsys": "2025.3.2.474", "ncu": "2025.3.1.0"}


def test_cells_are_named_with_what_they_were_measured_with_and_what_is_there_now(results: Path) -> None:
    found = version_changes.find_differing(version_changes.find_measured(results), NOW)
    assert [str(one.sidecar.relative_to(results)) for one in found] == [
        "a/train.nsys-rep.json", "a/train.time.csv.json", "a/train.trace.json.gz.json", "b/train.nsys-rep.json",
    ]  # fmt: skip
    assert version_changes.version_lines(found, NOW, "results") == [
        "1 cell (a train) was measured with torch 2.8.0, and torch 2.9.0 is installed now",
        "1 cell (a train) was measured with driver 570.1, and driver 580.1 is installed now",
        "2 cells (a train, b train) were measured with nsys 2025.1.1.2, and nsys 2025.3.2.474 is installed now",
        "these are kept as they are, with both versions in one table (columns torch_version, driver_version and so on); "
        "to measure them again, end the line with -R $(python -m profzoo.collect.version_changes results a b), or set "
        "environment=measure",
    ]


def test_nothing_is_said_where_nothing_differs_or_is_known(results: Path) -> None:
    found = version_changes.find_measured(results)
    assert version_changes.version_lines(version_changes.find_differing(found, {}), {}, "results") == []
    only = [one for one in found if one.model == "c"]
    assert [one.tool for one in only] == ["time"] and version_changes.find_differing(only, NOW) == []
    assert version_changes.find_measured(results / "nowhere") == []
    assert {one.model for one in version_changes.find_measured(results, ["b"])} == {"b"}


def test_a_run_is_told_of_the_tools_and_files_that_it_goes_by(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results.parent)
    monkeypatch.setattr(version_changes, "installed_versions", lambda of, local: {one: NOW[one] for one in of})

    def said(*words: str, tools: Sequence[str] = ("time",)) -> list[str]:
        return version_changes.version_messages(results.name, ["a", "b", "c"], tools, True, list(words))

    assert "2 cells (a train, b train)" in said("report", tools=["time", "nsys"])[-2]
    of_time = said("-n", "all")
    assert len(of_time) == 3 and not any("nsys" in line for line in of_time[:2])
    # A table across the zoo is of all models, a file of a cell of that one alone.
    assert len(said(f"./{results.name}/tables/cells.csv")) == 3
    # Of the file that is asked for, and of none that is made again.
    assert said(f"{results.name}/b/train.nsys.csv") == []
    assert said("report", "-R", f"{results.name}/a/train.time.csv.json") == []
    assert all(said(*words, tools=["time", "nsys"]) == [] for words in (["clean"], ["--list"], ["all", "-F"]))


def test_what_is_installed_is_known_without_importing_torch() -> None:
    program = (
        "import sys; from profzoo.collect import version_changes; found = version_changes.installed_versions({'torch', 'driver', 'ncu'});"
        "assert 'torch' not in sys.modules; print(found['torch'])"
    )
    found = subprocess.check_output([sys.executable, "-c", program], cwd=PROJECT, text=True).strip()
    place = importlib.util.find_spec("torch").origin  # type: ignore[union-attr]
    assert f"__version__ = '{found}'" in Path(str(place)).with_name("version.py").read_text()


def test_programs_of_other_machines_are_not_asked_for_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ncu"
    program.write_text(f"#!/bin/sh\necho NVIDIA\necho '{NCU.format('2026.1.0.0')}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\nGCC version: 13.2.0\n")
    monkeypatch.setattr(version_changes, "DRIVERS", (tmp_path / "none", driver))
    assert version_changes.installed_versions({"driver", "ncu"}) == {"driver": "580.65.06", "ncu": "2026.1.0.0"}
    assert version_changes.installed_versions({"driver", "ncu"}, local=False) == {}
    # What hangs, or says nothing, is not known.
    program.write_text("#!/bin/sh\nexit 1\n")
    assert version_changes.installed_versions({"ncu"}) == {}


def test_the_command_that_is_printed_names_the_files(results: Path) -> None:
    collected(results, "d/train.time.csv", "time", torch="1.2.3")
    command = [sys.executable, "-m", "profzoo.collect.version_changes", str(results), "d"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(results / "d/train.time.csv.json")]


def test_the_table_of_cells_says_what_each_was_measured_with() -> None:
    cells = pd.DataFrame({"model": ["a", "b", "c"], "phase": "train"})
    a, b = ({"model": name, "phase": "train"} for name in "ab")
    table = across_cells.add_version_columns(cells, [
        ("time", a, facts("time", "2.8.0", driver="570.1")),
        ("nsys", a, facts("nsys", "2.9.0", driver="580.1", tool_version=NSYS.format("2025.3.2.474"))),
        ("torch", a, facts("torch", "2.9.0", driver="580.1")),
        ("time", b, facts("time", "2.9.0", driver="580.1")),
        ("ncu", b, facts("ncu", "2.9.0", driver="580.1", tool_version=NCU.format("2025.3.1.0"))),
    ])  # fmt: skip
    assert table.to_dict("list") == {
        "model": ["a", "b", "c"], "phase": ["train"] * 3,
        "torch_version": ["2.8.0 (time), 2.9.0 (nsys, torch)", "2.9.0", ""],
        "driver_version": ["570.1 (time), 580.1 (nsys, torch)", "580.1", ""],
        "nsys_version": ["2025.3.2.474", "", ""], "ncu_version": ["", "2025.3.1.0", ""],
    }  # fmt: skip
    bare = {"tool": "time", "torch": "2.9.0", "driver": None, "tool_version": None}
    assert of_tools.versions_of(bare) == {"torch": "2.9.0"}
    assert of_tools.versions_of({"tool": "ncu", "tool_version": None}) == {} and of_tools.short("weekly") == "weekly"


def test_a_page_of_several_versions_says_which_and_marks_their_cells(tmp_path: Path) -> None:
    versions = {"torch_version": "2.9.0", "driver_version": "580.1", "nsys_version": "", "ncu_version": ""}
    cells = pd.DataFrame([CELL | versions | {"model": f"m{number}"} for number in range(13)])
    agreement = cells[["model", "phase", "step_ns"]].assign(
        nsys_launches=5.0, torch_launches=5.0, launches_spread=0.0, nsys_gpu_ns=1e6, gpu_ns_spread=0.0, nsys_slowdown=1.9,
        flag="", cause="",
    )  # fmt: skip

    def shown(cells: pd.DataFrame) -> str:
        return rendered(tmp_path, ["f"], cells=cells, agreement=agreement)

    assert overview.format_versions(cells) == [] and overview.most_common_versions(cells) == {}
    cells.loc[:5, "torch_version"] = "2.8.0"
    first = [f"{row.model} {row.phase}" for row in cells.head(4).itertuples()]
    said = overview.format_versions(cells)
    assert said[0] == f"torch 2.8.0: {', '.join(first)} and 2 more" and len(said) == 2
    html = shown(cells)
    assert "Measured with different versions" in html and html.count('<small class="warn">torch 2.8.0</small>') == 6
    assert "Measured with different versions" not in shown(cells.assign(torch_version="2.9.0"))
    # One cell of which tools were run with several.
    one = cells.head(1).assign(torch_version="2.8.0 (time), 2.9.0 (nsys)")
    (line,) = overview.format_versions(one)
    assert line.startswith(f"torch 2.8.0 (time), 2.9.0 (nsys): {first[0]}; ratios of times under different tools")
    # The head names each version once; the ratio of the two times names both.
    mixed = pd.concat([one, cells.tail(len(cells) - 1).assign(torch_version="2.9.0")])
    html = shown(mixed)
    assert "<span>software</span> <b>torch 2.8.0 and 2.9.0, driver 580.1</b>" in html
    assert html.count("of torch 2.8.0 and 2.9.0") == 1


def test_upgraded_packages_are_told_and_policies_say_what_follows(tmp_path: Path) -> None:
    """Where the folder of the packages is on this machine: that of a script's Python, too."""
    folder = tmp_path / "site-packages"
    for name, modules in (("timm-1.1.0", "timm"), ("scikit_learn-1.5.0", "sklearn"), ("extra-3.0", "extra")):
        (folder / f"{name}.dist-info").mkdir(parents=True)
        (folder / f"{name}.dist-info/top_level.txt").write_text(modules)
    (folder / "torch").mkdir()
    (folder / "torch/version.py").write_text("__version__ = '2.7.0+cu1'\n")
    assert external_programs.find_packages([str(folder)], ["sklearn.svm", "timm"]) == {
        "scikit-learn": "1.5.0", "timm": "1.1.0",
    }  # fmt: skip
    # In a folder before it, as on PYTHONPATH, which counts alone for what both have.
    (tmp_path / "before" / "scikit_learn-1.4.0.dist-info").mkdir(parents=True)
    packages = {"timm": "1.0.0", "scikit-learn": "1.4.0", "gone": "1.0"}
    more = {"packages": packages, "packages_from": [str(tmp_path / "before"), str(folder)]}
    sidecar = collected(tmp_path / "results", "a/train.time.csv", "time", "2.7.0+cu1", **more)  # type: ignore[arg-type]
    found = version_changes.find_measured(tmp_path / "results")
    # Not the workflow's own torch.
    assert version_changes.find_differing(found, {"torch": "2.9.0"}) == found
    policies = {"measure": "these are measured again", "fail": "the run ends here", "say": "these are kept"}
    for policy, follows in policies.items():
        first, second = version_changes.version_lines(found, {}, "results", policy)
        assert first == "1 cell (a train) was measured with timm 1.0.0, and timm 1.1.0 is installed now"
        assert second.startswith(follows)
    assert version_changes.describe_changes(sidecar) == "timm was 1.0.0 and is 1.1.0"
    elsewhere = {**more, "packages_from": [str(tmp_path / "of another machine")]}
    sidecar = collected(tmp_path / "results", "a/train.time.csv", "time", "2.7.0+cu1", **elsewhere)  # type: ignore[arg-type]
    assert "timm" not in version_changes.describe_changes(sidecar)
