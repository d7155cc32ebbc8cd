"""The pages that `make docs` writes: what the schema or costs.yaml lacks is named in one line."""

import copy
import json
import re
from pathlib import Path

import pytest

from profzoo import extensions, import_graph, schema
from profzoo.cell import cell_types, config_types, settings, tool_types
from profzoo.config import configuration
from profzoo.document import config as document_config
from profzoo.document import python_types
from profzoo.document import sets as document_sets
from profzoo.errors import ConfigError
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


def test_a_description_of_no_section_set_is_named() -> None:
    costs = copy.deepcopy(dict(ncu_costs.load_costs()))
    costs["answers"]["trafic"] = "nothing"
    with pytest.raises(ConfigError, match=r"`answers` has trafic, which is no section set: did you mean 'traffic'\?"):
        document_sets.write_sets_page(SHIPPED, costs)


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


@pytest.mark.parametrize("document", [document_config, document_sets])
def test_the_page_is_written_or_one_line_says_why_not(
    document: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document.main(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text().startswith("# ")
    rules = copy.deepcopy(dict(schema.load_schema()))
    rules["properties"]["ncu"]["properties"]["sets"]["default"]["mine"] = {"set": "full"}
    del rules["properties"]["window"]["description"]
    monkeypatch.setattr(schema, "load_schema", lambda: rules)
    with pytest.raises(SystemExit, match=r"^profzoo: error: .*(mine|window).*: add "):
        document.main(tmp_path / "page.md")


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
            assert set(config[name]) == part.__required_keys__
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
