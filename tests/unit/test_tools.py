"""tools: every package has what the registry asks of it, and the registry asks every package."""

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from profzoo import schema, tools
from profzoo.cell import settings
from profzoo.config import configuration, unknown_targets
from profzoo.errors import ConfigError
from profzoo.tables import cell_tables
from profzoo.tools import defaults
from profzoo.tools.nsys import activity

PARTS = {
    "command": (tools.Command, tools.commands),
    "files": (tools.Files, tools.files),
    "activity": (tools.Activity, tools.activities),
    "failures": (tools.Failures, tools.failures),
    "doctor": (tools.Doctor, tools.doctors),
}


def members(protocol: Any) -> set[str]:
    return {name for name in {*vars(protocol), *inspect.get_annotations(protocol)} if not name.startswith("_")}


@pytest.mark.parametrize("part", PARTS)
def test_a_module_has_all_that_is_asked_of_it(part: str) -> None:
    protocol, found = PARTS[part]
    assert found()
    for name, module in found().items():
        for member in members(protocol):
            assert hasattr(module, member), f"{name}.{part} lacks {member}"
            asked, given = getattr(protocol, member, None), getattr(module, member)
            if callable(asked):
                assert len(inspect.signature(given).parameters) == len(inspect.signature(asked).parameters) - 1


def test_what_a_module_leaves_out_is_filled_in() -> None:
    lean = ModuleType("lean")
    lean.name_parts = lambda own: ["lean", "lean-raw"]
    made = {"samples": Path("a.csv"), "sidecar": Path("a.csv.json"), "timed": Path("b.json")}
    command = defaults.Filled("lean", None, defaults.Command)
    assert command.PROGRAM is None and command.wrap_command([], made, 1) == command.program_options(made) == []
    assert command.adapt_command(["python"], gpu=False) == ["python"] and command.check_settings({"window": 1}) == {
        "window": 1
    }
    assert command.output_files(made) == [Path("a.csv")] and command.arrange_outputs(made) is None
    files = defaults.Filled("lean", lean, defaults.Files)
    assert files.name_parts({}) == ["lean", "lean-raw"] and files.exported_files({}) == ["{phase}.lean.csv"]
    assert (
        files.required_files({}) == [*files.table_inputs({}).values()] == ["{phase}.lean.csv", "{phase}.lean.csv.json"]
    )
    lean.table_inputs = lambda own: {"lean": "{phase}.other.csv"}
    assert files.required_files({}) == ["{phase}.other.csv"]
    activity = defaults.Filled("lean", lean, defaults.Activity)
    assert (
        activity.PLACE is None
        and activity.summarise_kernels(None, {}) is None
        and activity.summarise_cell(None, {}) == {}
    )
    with pytest.raises(AttributeError, match="TABLE"):
        _ = activity.TABLE


@pytest.mark.parametrize("tool", tools.names())
def test_no_module_repeats_a_default(tool: str) -> None:
    """A function whose body is its default's is boilerplate."""
    made = {"report": Path("a"), "sidecar": Path("b"), "steps": Path("c")}
    for part, default in (("command", defaults.Command), ("files", defaults.Files), ("activity", defaults.Activity)):
        if (module := tools._parts(part).get(tool)) is None:
            continue
        filled = default(tool, defaults.Filled(tool, module, default))
        for name in members(PARTS[part][0]) & set(vars(module)):
            if not callable(getattr(filled, name, None)):
                assert getattr(filled, name, "none") != getattr(module, name), f"{tool}.{part}.{name}"
            elif name in ("exported_files", "table_inputs", "required_files", "name_parts"):
                own = configuration.normalise_config({})[tool]
                assert getattr(filled, name)(own) != getattr(module, name)(own), f"{tool}.{part}.{name}"
            elif name in ("program_options", "output_files") and tool in (tools.BASELINE, "ncu"):
                assert getattr(filled, name)(made) != getattr(module, name)(made), f"{tool}.{part}.{name}"


def test_every_tool_says_what_it_does() -> None:
    assert {does for tool in tools.names() for does in schema.tool_schemas()[tool]["does"]} == set(tools.DOES)
    assert tools.that(tools.TIME) == [tools.BASELINE] and tools.that(tools.ATTRIBUTE) == ["torch"]


def test_every_tool_says_what_it_leaves() -> None:
    assert list(tools.files()) == tools.names() and {"time", "ncu", "nsys", "torch"} <= set(tools.names())


def test_the_configuration_takes_every_tool_and_no_other() -> None:
    config = configuration.normalise_config({"tool": ",".join(tools.names())})
    assert config["tool"] == tools.names() and set(tools.names()) <= set(config)
    with pytest.raises(ConfigError, match="did you mean 'nsys'"):
        configuration.normalise_config({"tool": "nsyss"})


@pytest.mark.parametrize("tool", tools.names())
def test_a_cell_resolves_under_every_tool(tool: str) -> None:
    config = configuration.normalise_config({})
    assert settings.resolve_cell("lstm", "train", tool, config)["window"] == config[tool]["window"]


@pytest.mark.parametrize("tool", tools.names())
def test_names_of_its_files_are_known_as_targets(tool: str) -> None:
    config = configuration.normalise_config({})
    patterns = [
        *tools.files()[tool].exported_files(config[tool]),
        *tools.files()[tool].table_inputs(config[tool]).values(),
    ]
    for pattern in patterns:
        target = f"results/lstm/{pattern.format(phase='train')}"
        unknown_targets.check_targets([target], "results", config)


def test_columns_that_a_tool_adds_to_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "summarise_cell", lambda table, facts: {"kernels": len(table)}, raising=False)
    baseline = pd.DataFrame({"model": ["a", "b"], "phase": ["train", "train"], "step_ns": [1, 2]})
    rows = pd.DataFrame({"kernel": ["x", "y"]})
    added = cell_tables.add_tool_columns(baseline, [("nsys", {"model": "b", "phase": "train"}, rows, {})])
    assert added["kernels"].isna().tolist() == [True, False] and added["kernels"][1] == 2
    assert added.drop(columns="kernels").equals(baseline)


def test_the_parts_of_the_schema_are_those_of_the_tools() -> None:
    assert list(schema.tool_schemas()) == tools.names()
    assert all("window" in part["properties"] for part in schema.tool_schemas().values())
