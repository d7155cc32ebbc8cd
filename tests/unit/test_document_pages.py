"""The pages that `make docs` writes: what the schema or costs.yaml lacks is named in one line."""

import copy
import json
import re
from pathlib import Path

import pytest

from profzoo import extensions
from profzoo.cell import cell_types, config_types, schema, settings, tool_types
from profzoo.cell.registry import find_model
from profzoo.config import configuration
from profzoo.config import configuration as config
from profzoo.document import config as document_config
from profzoo.document import python_types
from profzoo.document import sets as document_sets
from profzoo.errors import ConfigError
from profzoo.records import import_graph
from profzoo.tools.ncu import costs as ncu_costs

SHIPPED = schema.load_schema()["properties"]["ncu"]["properties"]["sets"]["default"]


def test_a_section_set_without_a_description_is_named() -> None:
    sets = {**SHIPPED, "trafic": {"metrics": ["dram__bytes.sum"]}}
    with pytest.raises(ConfigError) as error:
        document_sets.write_sets_page(sets, ncu_costs.load_costs())
    assert str(error.value) == (
        "profzoo/tools/ncu/costs.yaml has no description of the section set trafic under `answers`: add a line there that "
        "says which question the set answers"
    )


def test_sets_of_an_extension_are_on_a_page_that_is_written_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    sets = "known: {metrics: [gpu__time_duration.sum]}\nnew: {metrics: [sm__never_measured.sum]}\n"
    (tmp_path / "lab/sets.yaml").write_text(sets)
    monkeypatch.setenv(extensions.PASSED, json.dumps([str(tmp_path / "lab")]))
    for document in (document_sets, document_config):
        document.main(tmp_path / "page.md")
        assert "| `known` | " in (tmp_path / "page.md").read_text()
    document_sets.main(tmp_path / "page.md")
    *_, known, new = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| `")]
    assert re.fullmatch(r"\| `known` \| a set of the extension `lab` \| at most 1 \| at most 0\.\d+ \|", known)
    assert new == "| `new` | a set of the extension `lab` | probed before the first run | probed |"
    monkeypatch.setenv(extensions.PASSED, "[]")
    document_sets.main(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == (import_graph.PROJECT / "docs/reference/sections.md").read_text()


@pytest.mark.parametrize("lacking", ["description", "default"])
def test_a_key_without_a_description_is_named(lacking: str) -> None:
    rules = copy.deepcopy(dict(schema.load_schema()))
    del rules["properties"]["ncu"]["properties"]["window"][lacking]
    with pytest.raises(ConfigError, match=f"^the schema's key ncu.window has no {lacking}: add one"):
        document_config.write_config_page(rules)


def test_the_types_of_settings_are_those_of_the_schema(tmp_path: Path) -> None:
    python_types.main(str(tmp_path))
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    here = Path(cell_types.__file__).parent
    assert written == {name: (here / name).read_text(encoding="utf-8") for name in written} and len(written) == 3


def test_the_configuration_has_the_keys_of_its_type() -> None:
    config = configuration.normalise_config({})
    assert set(config) == config_types.Config.__required_keys__
    for name, part in config_types.Config.__annotations__.items():
        if hasattr(part, "__required_keys__"):
            assert part.__required_keys__ <= set(config[name]) == {*part.__annotations__}
    for chosen in config["ncu"]["sets"].values():
        assert set(chosen) <= tool_types.SectionSet.__optional_keys__


@pytest.mark.parametrize("tool", ["time", "torch"])
def test_a_resolved_cell_has_the_keys_of_its_type(tool: str) -> None:
    cell = settings.resolve_cell("lstm@graph", "train", tool, configuration.normalise_config({}))
    declared = cell_types.CellSettings
    assert set(cell) <= declared.__required_keys__ | declared.__optional_keys__ and "graph" in cell
    assert declared.__required_keys__ <= set(cell) and ("profiler" in cell) == (tool == "torch")
    for name, part in (("data", cell_types.DataSettings), ("profiler", cell_types.ProfilerSettings)):
        assert name not in cell or part.__required_keys__ <= set(cell[name]) <= {*part.__annotations__}


def keys(part: dict, prefix: str = "") -> list[str]:
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
