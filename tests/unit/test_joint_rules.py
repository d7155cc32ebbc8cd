"""Rules that run the scripts of several rules of a cell in one process."""

from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.io import AnnotatedString
from snakemake.iocontainers import InputFiles, Log, OutputFiles, Params

from profzoo.records import derived_outputs
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
    assert list(joint.rules) == ["export", "cover"]
    assert joint.outputs == {
        "export__csv": "r/{model}/{phase}.nsys.csv", "cover__csv": "r/{model}/{phase}.ncu.deep.csv"
    }  # fmt: skip
    assert joint.logs["cover"] == "logs/{model}/{phase}.cover.log"
    assert joint.params == {"export__steps": [1, 2], "cover__steps": [1, 2]}
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
