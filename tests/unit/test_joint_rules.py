"""Rules that run the scripts of several rules of a cell in one process."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.io import AnnotatedString
from snakemake.iocontainers import InputFiles, Log, OutputFiles, Params

from profzoo.records import derived_outputs
from profzoo.records.derived_outputs import INSIDE
from profzoo.workflow import joint_rules


def rule(name: str, output: str, inputs: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(
        name=name, input=InputFiles(fromdict=inputs), output=OutputFiles(fromdict={"csv": output}),
        log=Log([f"logs/{{model}}/{{phase}}.{name}.log"]), params=Params(fromdict={"steps": [1, 2]}),
    )  # fmt: skip


def joiner() -> joint_rules.Joiner:
    marked = AnnotatedString("function")
    marked.callable = lambda wildcards: {"peaks": f"peaks/{wildcards.model}.csv"}
    known = [
        rule("export", "r/{model,a|b}/{phase}.nsys.csv", {"found": lambda wildcards: [f"{wildcards.phase}.x", "y"]}),
        rule("cover", "r/{model}/{phase}.ncu.{set}.csv", {"census": lambda wildcards: f"{wildcards.set}.csv"}),
        rule("other", "r/{model}/{phase}.other.csv", {}),
    ]
    known[0].input.append(marked)
    files = ["{phase}.nsys.csv", "{phase}.ncu.deep.csv"]
    return joint_rules.Joiner({one.name: one for one in known}, files, "deep", {})


def test_files_and_parameters_have_the_names_of_their_rules() -> None:
    joint = joiner().join("export", "cover", "other")
    assert joint.rules == ["export", "cover"]
    assert joint.outputs == {
        "export__csv": "r/{model}/{phase}.nsys.csv", "cover__csv": "r/{model}/{phase}.ncu.deep.csv"
    }  # fmt: skip
    assert joint.logs["cover"] == "logs/{model}/{phase}.cover.log"
    assert {**joint.params, INSIDE: None} == {"export__steps": [1, 2], "cover__steps": [1, 2], INSIDE: None}
    wildcards = joint_rules.internals.make_wildcards({"model": "lstm", "phase": "train"})
    assert joint.list_inputs(wildcards) == {
        "export__found": ["train.x", "y"], "export__peaks": "peaks/lstm.csv", "cover__census": "deep.csv"
    }  # fmt: skip


def test_a_job_is_split_by_the_rules_that_it_joins() -> None:
    job = SimpleNamespace(
        input=InputFiles(fromdict={"a__x": "x", "ab__y": "y"}), output=OutputFiles(fromdict={"a__o": "o", "ab__p": "p"}),
        params=Params(fromdict={"a__steps": [1, 2]}), log=Log(fromdict={"a": "a.log", "ab": "ab.log"}), wildcards={},
    )  # fmt: skip
    first, second = derived_outputs.split_job(job, "joint")
    assert (first.rule, list(first.input), list(first.output), list(first.log)) == ("a", ["x"], ["o"], ["a.log"])
    assert first.params.steps == [1, 2] and (second.rule, list(second.input), second.output.p) == ("ab", ["y"], "p")
    alone = SimpleNamespace(**{**vars(job), "log": Log(["one.log"])})
    (whole,) = derived_outputs.split_job(alone, "joint")
    assert whole.rule == "joint" and whole.input is job.input and [str(path) for path in whole.outputs] == ["o", "p"]


def chained() -> dict[str, SimpleNamespace]:
    """Rules across cells: the second reads what the first makes beside another file, and the third nothing."""
    return {
        "first": rule("first", "r/tables/a.csv", {"found": lambda wildcards: "x.csv"}),
        "second": rule("second", "r/tables/b.csv", {"found": lambda wildcards: ["<results>/tables/a.csv", "y.csv"]}),
        "other": rule("other", "r/tables/c.csv", {"found": lambda wildcards: []}),
    }


def test_what_parts_make_for_others_is_no_input_of_the_job_but_of_the_part() -> None:
    joint = joint_rules.Joiner(chained(), [], "", {}, "r").join_absent(chained(), ["<results>/tables/b.csv"])
    assert joint.rules == ["first", "second"]
    wildcards = joint_rules.internals.make_wildcards({})
    assert joint.list_inputs(wildcards) == {"first__found": "x.csv", "second__found": ["y.csv"]}
    assert joint.list_inside(wildcards) == {"second": {"found": ["r/tables/a.csv", "y.csv"]}}
    job = SimpleNamespace(
        input=InputFiles(fromdict=joint.list_inputs(wildcards)), output=OutputFiles(fromdict=joint.outputs),
        params=Params(fromdict={INSIDE: joint.list_inside(wildcards)}), log=Log(fromdict=joint.logs), wildcards={},
    )  # fmt: skip
    first, second = derived_outputs.split_job(job, "joint")
    assert (first.input.found, second.input.found) == ("x.csv", ["r/tables/a.csv", "y.csv"])
    # A name without files stays an input.
    assert joint_rules.Joiner(chained(), [], "", {}).join_absent(["other"], ["r/tables/c.csv"]).list_inputs(
        wildcards
    ) == {"other__found": []}


def test_what_is_there_is_left_to_its_own_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r/tables").mkdir(parents=True)
    Path("r/tables/a.csv").touch()
    joiner = joint_rules.Joiner(chained(), [], "", {}, "r")
    assert joiner.join_absent(chained(), ["r/tables/b.csv"]).rules == ["second"]
    assert joiner.join_absent(chained(), ["r/tables/a.csv"]).rules == []


def test_a_rule_is_joined_with_itself() -> None:
    drawn = rule("draw", "figures/{figure}.svg", {"table": lambda wildcards: f"{wildcards.figure}.csv"})
    drawn.params = Params(fromdict={"title": lambda wildcards: wildcards.figure.title(), "dpi": 9})
    joint = joint_rules.Joiner({"draw": drawn}, [], "", {}).join_each("draw", "figure", ["a", "b"])
    assert joint.outputs == {"draw__a__csv": "figures/a.svg", "draw__b__csv": "figures/b.svg"}
    wildcards = joint_rules.internals.make_wildcards({})
    assert joint.list_inputs(wildcards) == {"draw__a__table": "a.csv", "draw__b__table": "b.csv"}
    assert joint.params["draw__b__title"](wildcards) == "B" and joint.params["draw__b__dpi"] == 9
    job = SimpleNamespace(
        input=InputFiles(fromdict=joint.list_inputs(wildcards)), output=OutputFiles(fromdict=joint.outputs),
        params=Params(fromdict={"draw__a__dpi": 9, "draw__b__dpi": 9}), log=Log(fromdict=joint.logs), wildcards={},
    )  # fmt: skip
    parts = derived_outputs.split_job(job, "draw_figures_1")
    assert [(part.rule, list(part.input), list(part.output)) for part in parts] == [
        ("draw", ["a.csv"], ["figures/a.svg"]), ("draw", ["b.csv"], ["figures/b.svg"])
    ]  # fmt: skip


@pytest.mark.parametrize(("available", "apart", "model"), [
    ({("a", "train"): ["time", "nsys", "torch"], ("b", "imported"): ["time", "nsys"]}, [], "a"),
    ({("a", "train"): ["time", "nsys"], ("b", "imported"): ["time", "nsys"]}, [], "a|b"),
    ({("b", "imported"): ["time", "nsys", "torch"]}, [], "b"),
    ({("b", "imported"): ["time", "nsys"]}, ["b"], "no_cell"),
    ({("a", "train"): ["time"], ("b", "train"): ["time"]}, ["a"], "b"),
    ({}, [], "no_cell"),
])  # fmt: skip
def test_cells_that_lack_a_tool_or_run_on_several_gpus_keep_their_rules(
    available: dict[tuple[str, str], list[str]], apart: list[str], model: str
) -> None:
    assert joint_rules.match_joint_cells(available, apart) == {"model": model, "phase": "train|inference|imported"}
