"""Reports that the configuration imports: what is checked, selected, and asked for on the command line."""

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.cell import settings
from profzoo.config import configuration, imported_reports
from profzoo.errors import ConfigError, DataError
from profzoo.foreign_reports import sidecars as sidecars_of
from profzoo.foreign_reports.steps import write_step_table
from profzoo.range_names import IMPORTED
from profzoo.tables import cell_tables
from profzoo.verdicts.rules import cell_facts
from profzoo.workflow import imported
from profzoo.workflow.selection import Selection

RUN7 = {"imported": {"run7": {"torch": "rank0.json.gz", "ncu": "a.csv,b.csv"}}}


def normalised(**given):
    return configuration.normalise_config(given)


def test_an_imported_model_has_one_cell_and_is_in_its_group() -> None:
    config = normalised(**RUN7, models="run7,lstm", phases="train")
    assert configuration.select_cells(config) == [("run7", IMPORTED), ("lstm", "train")]
    assert configuration.select_cells({**config, "models": [IMPORTED]}) == [("run7", IMPORTED)]
    assert ("run7", IMPORTED) in configuration.select_cells({**config, "models": ["all"]})
    assert config["imported"]["run7"]["ncu"] == ["a.csv", "b.csv"]
    assert settings.weights_source("run7", IMPORTED, config) is None


@pytest.mark.parametrize(
    "given, line",
    [
        ({"lstm": {"torch": "a.json"}}, "imported.lstm: a model has this name already"),
        ({"run7": {"step": "iteration"}}, "imported.run7 names no report: give torch, nsys or ncu"),
        ({"run7": {"trace": "a.json"}}, "trace"),
        ({"LSTM": {"torch": "a.json"}}, "differ only in case"),
        ({"tables": {"torch": "a.json"}}, "tables"),
    ],
)
def test_what_cannot_be_imported_is_one_line(given, line) -> None:
    with pytest.raises(ConfigError, match=re.escape(line)) as error:
        normalised(imported=given)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named_with_the_nearest_unless_it_was_imported_before(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("{}")
    given = {"run7": {"torch": str(tmp_path / "rank1.json")}}
    with pytest.raises(ConfigError, match=r"imported.run7.torch = '.*rank1.json': the file does not exist; .*rank0.j"):
        imported_reports.check_files(given, ["run7"], tmp_path / "results")
    with pytest.raises(ConfigError, match="the file is a folder"):
        imported_reports.check_files({"run7": {"torch": str(tmp_path)}}, ["run7"], tmp_path / "results")
    made = tmp_path / "results" / "run7" / "imported.trace.json.gz.json"
    made.parent.mkdir(parents=True)
    made.write_text("{}")
    imported_reports.check_files(given, ["run7"], tmp_path / "results")


def test_a_missing_file_far_from_all_others_lists_the_reports_that_are_there(tmp_path: Path) -> None:
    given = {"run7": {"torch": str(tmp_path / "zzzzzz")}}
    with pytest.raises(ConfigError, match="zzzzzz': the file does not exist; no report is there"):
        imported_reports.check_files(given, ["run7"], tmp_path / "results")
    for name in (".gitignore", "README.md", *(f"rank{number}.json.gz" for number in range(7)), "a.sqlite"):
        (tmp_path / name).write_text("{}")
    there = "a.sqlite, rank0.json.gz, rank1.json.gz, rank2.json.gz, rank3.json.gz and 3 more"
    with pytest.raises(ConfigError, match=rf"the file does not exist; reports there: {there}$"):
        imported_reports.check_files(given, ["run7"], tmp_path / "results")
    given = {"run7": {"torch": str(tmp_path / "gone" / "a.json")}}
    with pytest.raises(ConfigError, match=r"the file does not exist; neither does its folder .*gone"):
        imported_reports.check_files(given, ["run7"], tmp_path / "results")


# The beginning of a report of each tool, in each form.
BEGINS = {
    "nsys": [b"SQLite format 3\0" + bytes(100), b'"Time (%)","Total Time (ns)","Instances","Avg (ns)","Name"\n1,2,3,4,k\n',
             b"Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,Name\n1,2,3,4,5,6,k\n"],
    "torch": [b'{"traceEvents": []}', b'\xef\xbb\xbf[{"ph": "X"}]', b'  \n{"a": 1}'],
    "ncu": [b'==PROF== Connected\n"ID","Process ID","Kernel Name"\n"0","1","k"\n', b"ID;Kernel Name;x\n0;k;1\n",
            '"ID","Kernel Name"\n"0","k"\n'.encode("utf-16")],
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("given", list(BEGINS))
def test_the_report_of_another_tool_is_refused_with_what_to_type(tmp_path: Path, given: str, packed: bool) -> None:
    path = tmp_path / "a.bin"
    for tool, forms in BEGINS.items():
        for content in forms:
            path.write_bytes(gzip.compress(content) if packed else content)
            assert sidecars_of.recognise_report(path)[0] == tool
            if tool == given:
                sidecars_of.refuse_other_tool(path, given)
                continue
            with pytest.raises(DataError, match=re.escape(f"was given as {given}: import it with {tool}={path}")):
                sidecars_of.refuse_other_tool(path, given)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is empty: make the report again, or copy it again"),
        (b"PK\x03\x04rest", "is a zip archive: unpack it, and import the report in it"),
        (b"<!DOCTYPE html>", "is a page of HTML or XML and no report: download the file itself"),
        (b"version https://git-lfs.github.com/spec/v1", "is a pointer of Git LFS and no report: fetch the file itself"),
        (b"\x80\x04rest", "is a pickle of Python, such as a snapshot of memory: import a trace instead"),
        (gzip.compress(b"x" * 1000)[:15], "is cut off or damaged"),
    ],
    # A packed file has the time in it, and each process of the suite has to name the tests alike.
    ids=["empty", "zip", "page", "pointer", "pickle", "cut"],
)
@pytest.mark.parametrize("tool", list(BEGINS))
def test_what_is_no_report_is_named(tmp_path: Path, tool: str, content: bytes, line: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(line)):
        sidecars_of.refuse_other_tool(path, tool)


@pytest.mark.parametrize("way", ["itself", "a link", "another name", "a linked folder", "up and down"])
@pytest.mark.parametrize(
    ("tool", "name"), [("torch", "trace.json.gz"), ("nsys", "nsys.sqlite"), ("ncu", "launch.ncu-pages/0.csv")]
)
def test_a_report_that_the_import_would_replace_is_refused(tmp_path: Path, tool: str, name: str, way: str) -> None:
    """Also as a report of another name whose import is part of the same run; as that of a name that is not, it is read."""
    results = tmp_path / "results"
    made = results / "run7" / f"imported.{name}"
    made.parent.mkdir(parents=True)
    made.write_text("what was imported")
    (results / "other").mkdir()
    (tmp_path / "link.gz").symlink_to(made)
    os.link(made, tmp_path / "hard.gz")
    (tmp_path / "folder").symlink_to(made.parent)
    source = {
        "itself": made,
        "a link": tmp_path / "link.gz",
        "another name": tmp_path / "hard.gz",
        "a linked folder": tmp_path / "folder" / made.name,
        "up and down": results / "other" / ".." / made.relative_to(results),
    }[way]
    given = {one: {tool: str(source)} for one in ("run7", "run8")}
    for names in (["run7"], ["run8", "run7"]):
        with pytest.raises(ConfigError, match="a file that the import of run7 makes, and would be removed") as error:
            imported_reports.check_files(given, names, results)
        assert "\n" not in str(error.value) and f"imported.{names[0]}.{tool} = '{source}'" in str(error.value)
    imported_reports.check_files(given, ["run8"], results)
    assert made.read_text() == "what was imported"


def test_words_of_the_command_line_become_an_import() -> None:
    words = {"nsys": "out/a.nsys-rep", "ncu": "b.csv,c.csv", "name": "run7", "step": "iteration", "gpu": "h100"}
    entry = {"nsys": "out/a.nsys-rep", "ncu": "b.csv,c.csv", "step": "iteration"}
    found = imported_reports.take_words(words)
    assert found == {"gpu": "h100", "imported": {"run7": entry}, "models": ["run7"]}
    assert normalised(**found)["imported"]["run7"]["ncu"] == ["b.csv", "c.csv"]
    assert imported_reports.take_words({"torch": {"window": 3}}) == {"torch": {"window": 3}}
    with pytest.raises(ConfigError, match="import: 'all' is not a valid name of a model"):
        imported_reports.take_words({"torch": "all.json"})


def test_tools_are_those_of_the_reports() -> None:
    config = normalised(**RUN7, models="run7,lstm", phases="train", tool="nsys")
    cells = configuration.select_cells(config)
    found = imported.available_tools(cells, config["tool"], config)
    assert found["run7", IMPORTED] == {"time", "torch", "nsys", "ncu"} and found["lstm", "train"] == {"time", "nsys"}
    assert imported.chosen_tools(found, config["tool"]) == ["nsys", "torch", "ncu"]


def test_a_changed_file_is_imported_again_and_a_removed_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    config = normalised(imported={"run7": {"torch": str(path)}})
    imports = imported.Imports(config, str(tmp_path / "results"))
    wildcards = type("Wildcards", (), {"model": "run7", "phase": IMPORTED})()
    path.write_text("{}")
    first = imports.digests("torch")(wildcards)
    path.write_text("[]")
    assert imports.digests("torch")(wildcards) != first
    sidecar = tmp_path / "results/run7/imported.trace.json.gz.json"
    sidecar.parent.mkdir(parents=True)
    sidecar.write_text(json.dumps({"imported": {"files": [{"file": str(path), "sha256": first[0]}]}}))
    path.unlink()
    assert imports.digests("torch")(wildcards) == first


def test_import_makes_the_report_only_where_all_is_imported() -> None:
    exports = ["<results>/run7/imported.torch.csv", "<results>/lstm/train.torch.csv"]
    for cells, report in (([("run7", IMPORTED)], True), ([("run7", IMPORTED), ("lstm", "train")], False)):
        run = Selection(config={}, cells=cells, tools=[], available={})
        found = imported.imported_files(run, exports)
        assert exports[0] in found and exports[1] not in found and ("<results>/report.html" in found) == report


def test_the_table_of_cells_says_what_an_import_goes_by() -> None:
    about = {"steps_from": "ProfilerStep, as torch.profiler saw them", "coverage": ["it is of rank 0 of 8"],
             "files": [{"file": "a.json", "form": "trace", "sha256": "0" * 64}]}  # fmt: skip
    said = cell_tables.imported_text({"imported": about}).split(cell_tables.LINE_SEPARATOR)
    assert said == ["steps: ProfilerStep, as torch.profiler saw them", f"a.json (trace, sha256 {'0' * 12})",
                    "it is of rank 0 of 8"]  # fmt: skip
    assert cell_tables.imported_text({}) == ""


def test_tables_and_verdicts_know_the_clock_of_an_import_and_whether_it_has_steps(tmp_path: Path) -> None:
    made = {("one", IMPORTED): True, ("several", IMPORTED): False, ("lstm", "train"): None}
    timed, sidecars = [], []
    for (model, phase), whole in made.items():
        ns = [10**6] if whole else [10**6] * 3
        steps = sidecars_of.step_facts("found", np.array(ns), None) | {"whole": bool(whole)}
        facts = sidecars_of.report_facts("torch", model, ("CPU", "cpu"), steps, [])
        told, folder = tmp_path / f"{model}.json", tmp_path / model
        folder.mkdir()
        csv, sidecar = folder / f"{phase}.time.csv", folder / f"{phase}.time.csv.json"
        told.write_text(json.dumps(facts))
        write_step_table([str(told)], str(csv), str(sidecar))
        about = json.loads(sidecar.read_text()) | {"cell": {**facts["cell"], "phase": phase}}
        if whole is None:
            del about["imported"]
        sidecar.write_text(json.dumps(about))
        sidecars.append(str(sidecar))
        timed.append((cell_tables.cell_of(csv), pd.read_csv(csv), about))
    cells = cell_tables.cells(timed)
    assert cells["timed_under"].tolist() == ["torch.profiler", "torch.profiler", ""]
    assert cells["whole"].tolist() == [True, False, False]
    facts = cell_facts.read_cell_facts(sidecars)
    assert facts.whole == {("one", IMPORTED)}
    assert facts.timed_under == dict.fromkeys(list(made)[:2], "torch.profiler")
