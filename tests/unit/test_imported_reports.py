"""Reports that the configuration imports: what is checked, selected, and asked for on the command line."""

import json
import re
from pathlib import Path

import pytest

from profzoo.cell import settings
from profzoo.config import configuration, imported_reports, unknown_targets
from profzoo.errors import ConfigError
from profzoo.range_names import IMPORTED
from profzoo.tables import cell_tables
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


def test_without_imports_there_is_no_such_group() -> None:
    with pytest.raises(ConfigError, match="no model or group of that name"):
        configuration.select_cells(normalised(models="imported"))


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
    with pytest.raises(
        ConfigError, match=r"imported.run7.torch = '.*rank1.json': the file does not exist; .*rank0.json"
    ):
        imported_reports.check_files(given, ["run7"], tmp_path / "results")
    with pytest.raises(ConfigError, match="the file is a folder"):
        imported_reports.check_files({"run7": {"torch": str(tmp_path)}}, ["run7"], tmp_path / "results")
    made = tmp_path / "results" / "run7" / "imported.trace.json.gz.json"
    made.parent.mkdir(parents=True)
    made.write_text("{}")
    imported_reports.check_files(given, ["run7"], tmp_path / "results")


def test_words_of_the_command_line_become_an_import() -> None:
    words = {"nsys": "out/a.nsys-rep", "ncu": "b.csv,c.csv", "name": "run7", "step": "iteration", "gpu": "h100"}
    entry = {"nsys": "out/a.nsys-rep", "ncu": "b.csv,c.csv", "step": "iteration"}
    found = imported_reports.take_words(words)
    assert found == {"gpu": "h100", "imported": {"run7": entry}, "models": ["run7"]}
    assert normalised(**found)["imported"]["run7"]["ncu"] == ["b.csv", "c.csv"]
    assert imported_reports.take_words({"torch": {"window": 3}}) == {"torch": {"window": 3}}
    with pytest.raises(ConfigError, match="import: 'all' is no valid name of a model"):
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


def test_targets_of_an_imported_model_are_known() -> None:
    config = normalised(**RUN7)
    unknown_targets.check_targets(["results/run7/imported.layers.csv"], "results", config)
    with pytest.raises(ConfigError, match=r"unknown phase 'train'; .*imported"):
        unknown_targets.check_targets(["results/run7/train.layers.csv"], "results", config)


def test_exports_of_nsys_itself_are_left_out_where_there_is_no_report_of_it(monkeypatch) -> None:
    monkeypatch.setattr(imported.shutil, "which", lambda program: "/usr/bin/nsys")
    config = normalised(imported={"run7": {"torch": "a.json"}, "run8": {"nsys": "a.sqlite"}})
    assert imported.needs_program("results/run7/imported.nsys/osrt_sum.csv", config)
    assert not imported.needs_program("results/run8/imported.nsys/osrt_sum.csv", config)
    assert not imported.needs_program("results/run7/imported.nsys.csv", config)


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
