"""collect/left: what of a run's cells is there, and why the rest is not."""

from pathlib import Path

import pytest

from profzoo.collect import partial_report
from profzoo.collect.failures import Failure
from profzoo.config import configuration
from profzoo.errors import DataError
from profzoo.io.scripts import report_errors

CELLS = [("lstm", "train"), ("lstm", "inference"), ("unet", "train")]
KEPT = {
    "time": ["{phase}.time.csv"],
    "nsys": ["{phase}.nsys.csv"],
    "ncu": ["{phase}.ncu.csv", "{phase}.ncu.survey.csv"],
}


@pytest.fixture(scope="module")
def config() -> dict:
    return configuration.normalise_config({"tool": ["nsys", "ncu"], "weights": "trained"})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """All files of all cells."""
    for model, phase in CELLS:
        (tmp_path / "logs" / model).mkdir(parents=True, exist_ok=True)
        (tmp_path / model).mkdir(exist_ok=True)
        for name in (name for names in KEPT.values() for name in names):
            (tmp_path / model / name.format(phase=phase)).touch()
    return tmp_path


def failure(results: Path, outputs: str, why: str, **more: object) -> Failure:
    (log := results / f"{len(list(results.iterdir()))}.log").write_text(f"$ some words\nprofzoo: {why} (log: {log})\n")
    given = {"rule": "some", "wildcards": {"model": "lstm", "phase": "train"}, "job": None} | more
    return Failure(outputs=[f"{results}/lstm/{outputs}"], logs=[str(log)], **given)


def found(results: Path, config: dict, without: str | None = None) -> tuple[dict, list]:
    return partial_report.available_tools(CELLS, KEPT, results, results / "logs", config, without)


def test_what_is_all_there(results: Path, config: dict) -> None:
    there, missing = found(results, config)
    assert there == dict.fromkeys(CELLS, frozenset(KEPT)) and missing == []


def test_what_is_missing_is_told_with_the_reason_that_its_log_has(results: Path, config: dict) -> None:
    (results / "lstm/train.ncu.survey.csv").unlink()
    (results / "unet/train.time.csv").unlink()
    logs = results / "logs"
    # Not the end, another tool's, and another set's that went well.
    (logs / "lstm/train.survey.ncu.log").write_text("profzoo: a warning\nprofzoo: the GPU fell off (log: x)\n")
    (logs / "lstm/train.nsys.log").write_text("profzoo: of nsys\n")
    (logs / "unet/train.time.log").write_text("profzoo: a warning\nunet train on cpu: 2 steps\n")
    there, missing = found(results, config)
    assert there["lstm", "train"] == {"time", "nsys"} and there["lstm", "inference"] == frozenset(KEPT)
    assert missing == [
        {"model": "lstm", "phase": "train", "tool": "ncu", "why": "the GPU fell off"},
        # Once, without a tool: nothing can be told of a cell without its baseline.
        {"model": "unet", "phase": "train", "tool": "", "why": partial_report.UNMADE},
    ]


def test_what_a_job_noted_that_went_well_is_no_reason(results: Path, config: dict) -> None:
    """A plan says what it chose, on the console and in its log; the run ended before ncu came to it."""
    (results / "lstm/train.ncu.survey.csv").unlink()
    with pytest.raises(SystemExit), report_errors(str(results / "logs/unet/train.survey.plan.log")):
        raise DataError("no launches")
    with report_errors(str(results / "logs/lstm/train.survey.plan.log")) as say:
        say("ncu survey: 5 launches")
    _, (ncu,) = found(results, config)
    assert (ncu["tool"], ncu["why"]) == ("ncu", "train.ncu.survey.csv is missing")
    (results / "unet/train.ncu.survey.csv").unlink()
    assert found(results, config)[1][1]["why"] == "no launches"


def test_what_a_run_failed_to_make_is_missing_even_where_an_older_one_left_it(results: Path, config: dict) -> None:
    noted = results / "noted" / "without.json"
    nsys = failure(results, "train.nsys-rep", "nsys gave up", job='{"tool": "nsys", "cell": {"phase": "train"}}')
    unmade = [f"{results}/lstm/train.{name}" for name in ("nsys-rep", "nsys.csv", "ncu.csv", "ncu.survey.csv")]
    partial_report.write_failures([nsys], unmade, config, noted, str(results))
    there, missing = found(results, config, str(noted))
    assert there["lstm", "train"] == {"time"}
    assert [(one["tool"], one["why"]) for one in missing] == [
        ("nsys", "nsys gave up"),
        ("ncu", "not run, because nsys failed: nsys gave up"),
    ]


@pytest.mark.parametrize(
    ("output", "more", "lost"),
    [
        ("train.nsys.csv", {}, {("train", "nsys")}),
        ("train.nsys-launches.csv", {}, {("train", "ncu")}),
        ("train.survey.plan.json", {}, {("train", "ncu")}),
        ("weights.pt", {"job": '{"tool": "train", "cell": {"phase": "train"}}'}, {("inference", "time")}),
        ("train.a-b.rounds.csv", {"job": '{"tool": "time", "sides": {}, "cell": {"phase": "train"}}'}, set()),
    ],
)
def test_whose_part_a_job_was(results: Path, config: dict, output: str, more: dict, lost: set[tuple[str, str]]) -> None:
    noted = results / "without.json"
    partial_report.write_failures([failure(results, output, "no", **more)], [], config, noted, str(results))
    kept = {**KEPT, "torch": ["{phase}.time.csv"]}
    there, missing = partial_report.available_tools(CELLS, kept, results, results / "logs", config, str(noted))
    gone = {(phase, tool) for (model, phase), have in there.items() for tool in set(kept) - have if model == "lstm"}
    assert gone == lost
    assert {one["why"] for one in missing} == ({"no"} if lost else set())
    assert there["unet", "train"] == frozenset(kept)


@pytest.mark.parametrize(
    "name",
    ["train.kernels.csv", "train.layers.csv", "train.ncu.survey.coverage.csv", "train.torch-collectives.csv",
     "train.nsys-streams.csv", "train.nsys-memory.csv", "train.nsys.trace.json.gz", "train.ncu-source.survey.csv",
     "train.torch.cycles.csv", "train.torch-memory.svg", "train.torch-snapshot.csv"],
)  # fmt: skip
def test_a_file_that_a_report_can_do_without_costs_no_tool(results: Path, config: dict, name: str) -> None:
    noted = results / "without.json"
    partial_report.write_failures([failure(results, name, "no")], [], config, noted, str(results))
    there, missing = found(results, config, str(noted))
    assert there["lstm", "train"] == frozenset(KEPT) and missing == []
    assert partial_report.read_missing(str(noted)) == {f"{results}/lstm/{name}": "no"}


def test_a_job_of_all_cells_fails_for_the_file_that_its_reason_names(results: Path, config: dict) -> None:
    noted, across = results / "without.json", {"wildcards": {}, "rule": "tabulate"}
    table = failure(results, "../tables/cells.csv", f"{results}/unet/train.nsys.csv: line 3 is cut", **across)
    partial_report.write_failures([table], [], config, noted, str(results))
    there, (missing,) = found(results, config, str(noted))
    assert there["unet", "train"] == {"time", "ncu"} and there["lstm", "train"] == frozenset(KEPT)
    assert (missing["model"], missing["tool"]) == ("unet", "nsys") and "line 3 is cut" in missing["why"]
    assert partial_report.read_missing(str(noted)) == {}
    # One that names none costs what it was to make; peaks, which are measured, as well.
    peaks = Failure("measure_peaks", {"gpu": "h"}, '{"tool": "peaks", "cell": {}}', [f"{results}/peaks/h.csv"], [])
    figure = Failure("draw_figure", {"figure": "a"}, None, [f"{results}/figures/a.svg"], table.logs[:0])
    partial_report.write_failures([peaks, figure], [], config, noted, str(results))
    assert [one["part"] for one in partial_report.missing_rows(partial_report.read_missing(str(noted)))] == [
        "figure a",
        "peaks of h",
    ]


@pytest.mark.parametrize("noted", [True, False])
def test_a_variant_is_missing_for_the_weights_that_it_shares(results: Path, config: dict, noted: bool) -> None:
    name, cells = "lstm@bf16", [("lstm@bf16", "train"), ("lstm@bf16", "inference")]
    words = {"job": '{"tool": "train", "cell": {"phase": "train"}}'} if noted else {}
    weights = failure(results, "weights.pt", "no room", **words)
    if noted:
        partial_report.write_failures([weights], [], config, results / "without.json", str(results))
    else:
        Path(weights.logs[0]).rename(results / "logs/lstm/weights.log")
    path = str(results / "without.json") if noted else None
    _, missing = partial_report.available_tools(cells, KEPT, results, results / "logs", config, path)
    assert [(one["phase"], one["why"]) for one in missing] == [
        ("train", partial_report.UNMADE),
        ("inference", "no room"),
    ]
    assert {one["model"] for one in missing} == {name}


def test_a_cell_is_missing_for_what_its_model_said_first(results: Path, config: dict) -> None:
    noted = results / "without.json"
    cause = "lstm train failed with RuntimeError: a cat"
    time = failure(results, "train.time.csv", f"not run under time, because it failed under nsys: {cause}")
    nsys = failure(results, "train.nsys.csv", cause)
    partial_report.write_failures([time, nsys], [], config, noted, str(results))
    _, missing = found(results, config, str(noted))
    assert [one["why"] for one in missing] == [f"not run, because nsys failed: {cause}"]
