"""versions: what results were measured with, beside what is installed; in the terminal, in tables, and on the page."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from profzoo.collect import version_changes
from profzoo.import_graph import PROJECT
from profzoo.report import mixed_versions, page
from profzoo.tables import version_columns
from profzoo.tools import tool_versions as of_tools
from tests import whole_zoo

NSYS, NCU = "NVIDIA Nsight Systems version {}-253236389321v0", "Version {} (build 36398880) (public-release)"


def collected(results: Path, name: str, tool: str, torch: str = "2.9.0", **more: str) -> Path:
    """A file of that name with its sidecar; the sidecar's path."""
    path = results / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    sidecar = path.with_name(f"{path.name}.json")
    facts = {
        "tool": tool,
        "torch": torch,
        "tool_version": f"torch {torch}",
        "started": "2026-11-20T10:00:00+00:00",
        **more,
    }
    sidecar.write_text(json.dumps(facts))
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
        "to measure them again, end the line with -R $(python -m profzoo.collect.version_changes results a b)",
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
    monkeypatch.setattr(
        version_changes, "installed_versions", lambda wanted, local: {name: NOW[name] for name in wanted}
    )
    given = (results.name, ["a", "b", "c"])
    assert (
        "2 cells (a train, b train)" in version_changes.version_messages(*given, ["time", "nsys"], True, ["report"])[-2]
    )
    of_time = version_changes.version_messages(*given, ["time"], True, ["-n", "all"])
    assert len(of_time) == 3 and not any("nsys" in line for line in of_time[:2])
    # A table across the zoo is of all models, a file of a cell of that one alone.
    assert len(version_changes.version_messages(*given, ["time"], True, [f"./{results.name}/tables/cells.csv"])) == 3
    # Of the file that is asked for, and of none that is made again.
    assert version_changes.version_messages(*given, ["time"], True, [f"{results.name}/b/train.nsys.csv"]) == []
    again = [f"{results.name}/a/train.time.csv.json"]
    assert version_changes.version_messages(*given, ["time"], True, ["report", "-R", *again]) == []
    for words in (["clean"], ["--list"], ["all", "-F"]):
        assert version_changes.version_messages(*given, ["time", "nsys"], True, words) == []


def test_what_is_installed_is_known_without_importing_torch() -> None:
    program = (
        "import sys; from profzoo.collect import version_changes; found = version_changes.installed_versions({'torch', 'driver', 'ncu'});"
        "assert 'torch' not in sys.modules; import torch; assert found['torch'] == torch.__version__, found"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_and_drivers_of_other_machines_are_not_asked_for_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ncu"
    program.write_text(f"#!/bin/sh\necho NVIDIA\necho '{NCU.format('2026.1.0.0')}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    driver = tmp_path / "version"
    driver.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\nGCC version: 13.2.0\n"
    )
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


def facts(tool: str, torch: str, **more: str) -> dict[str, str]:
    return {"tool": tool, "torch": torch, "tool_version": f"torch {torch}", **more}


def test_the_table_of_cells_says_what_each_was_measured_with() -> None:
    cells = pd.DataFrame({"model": ["a", "b", "c"], "phase": "train"})
    a, b = ({"model": name, "phase": "train"} for name in "ab")
    table = version_columns.add_version_columns(cells, [
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
    assert of_tools.versions_of({"tool": "time", "torch": "2.9.0", "driver": None, "tool_version": None}) == {
        "torch": "2.9.0"
    }
    assert of_tools.versions_of({"tool": "ncu", "tool_version": None}) == {} and of_tools.short("weekly") == "weekly"


def test_a_page_of_several_versions_says_which_and_marks_their_cells(tmp_path: Path) -> None:
    given = whole_zoo.tables()
    cells = given["cells"].assign(torch_version="2.9.0", driver_version="580.1", nsys_version="", ncu_version="")
    assert mixed_versions.format_versions(cells) == [] and mixed_versions.most_common_versions(cells) == {}
    cells.loc[:5, "torch_version"] = "2.8.0"
    first = [f"{row.model} {row.phase}" for row in cells.head(4).itertuples()]
    assert (
        mixed_versions.format_versions(cells)[0] == f"torch 2.8.0: {', '.join(first)} and 2 more"
        and len(mixed_versions.format_versions(cells)) == 2
    )
    sidecars = [{"torch": "2.9.0", "cuda": None}] * len(cells)
    html = page.render_page({**given, "cells": cells}, sidecars, [], ["nsys"], tmp_path)
    assert "Measured with different versions" in html and html.count('<small class="warn">torch 2.8.0</small>') == 6
    plain = page.render_page({**given, "cells": cells.assign(torch_version="2.9.0")}, sidecars, [], ["nsys"], tmp_path)
    assert "Measured with different versions" not in plain
    # One cell of which tools were run with several.
    one = cells.head(1).assign(torch_version="2.8.0 (time), 2.9.0 (nsys)")
    assert mixed_versions.format_versions(one) == [f"torch 2.8.0 (time), 2.9.0 (nsys): {first[0]}"]
