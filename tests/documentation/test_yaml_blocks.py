"""Every documented block of YAML is what its reader takes: a configuration, a Snakemake profile, or a file of a plugin."""

import re
from collections.abc import Mapping

import pytest
import yaml
from snakemake.cli import get_argument_parser
from snakemake_executor_plugin_slurm import partitions  # type: ignore[import-untyped]

from profzoo.cell import schema
from profzoo.referee import gate
from tests import slow
from tests.documentation import declared, folder, pages
from tests.documentation.commands import Command, split_words
from tests.documentation.pages import Block
from tests.workflow import forked
from tests.workflow.project import Project

KEYS = frozenset(schema.load_schema()["properties"])
SHOWN = [block for block in pages.all_blocks() if block.language in ("yaml", "yml")]
OTHERS = [block for block in SHOWN if not folder.is_configuration(block, KEYS)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return folder.make_folder(tmp_path_factory.mktemp("reader") / "project")


def plan_with(reader: Project, text: str) -> tuple[int, str]:
    """Plan all that a configuration selects."""
    found = yaml.safe_load(text)
    own = list(found.get("settings") or found.get("imported") or ["lstm"])
    reader.write("config/config.yaml", yaml.safe_dump({"models": own, **found}))
    run = forked.snakemake(["all", "--dry-run", "--config", "tool=torch"], reader.root, reader.environment())
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(
    "block",
    slow.first([one for one in SHOWN if one not in OTHERS and not declared.of_extending(one)], 2),
    ids=lambda one: one.place,
)
def test_a_configuration_is_taken(reader: Project, block: Block) -> None:
    code, printed = plan_with(reader, block.text)
    assert code == 0 and "is now called" not in printed, f"{block.place}\n{printed}"


def test_a_configuration_with_a_mistake_is_found(reader: Project) -> None:
    code, printed = plan_with(reader, "models: [lstm]\nsettings: {lstm: {bacth: 3}}\n")
    assert code and "did you mean" in printed


def options() -> dict[str, bool]:
    """Long options of Snakemake, and whether each takes values by keys."""
    actions = get_argument_parser()._actions
    return {name.lstrip("-"): action.nargs == "+" for action in actions for name in action.option_strings}


def wrong_in_profile(found: Mapping[str, object]) -> list[str]:
    """What of a profile is not an option of Snakemake."""
    known = options()
    return [key for key in found if key not in known]


def wrong_in_actions(block: Block, found: Mapping[str, object]) -> list[str]:
    """Commands in a workflow of GitHub Actions that nothing is declared for."""
    wrong = []
    for step in re.findall(r"^\s*(?:- )?run: (?!\|)(.+)$", yaml.safe_dump(found, width=10**6), re.MULTILINE):
        for words in split_words(yaml.safe_load(step)):
            try:
                declared.judge_command(Command(block.page, block.line, tuple(words)), "")
            except ValueError as error:
                wrong.append(str(error))
    return wrong


@pytest.mark.parametrize("block", OTHERS, ids=lambda one: one.place)
def test_another_file_is_of_a_named_kind(block: Block, tmp_path_factory: pytest.TempPathFactory) -> None:
    if declared.of_extending(block):
        return
    found = yaml.safe_load(block.text)
    kind = declared.name_yaml(block, options())
    if kind == "partitions":
        path = tmp_path_factory.mktemp("partitions") / "partitions.yaml"
        path.write_text(block.text)
        assert partitions.read_partition_file(path)
    elif kind == "profile":
        assert not wrong_in_profile(found), block.place
    elif kind == "gate":
        assert gate.parse_configuration(block.text, block.place)
    elif kind == "actions":
        assert not wrong_in_actions(block, found), block.place
    else:
        keys = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
        raise AssertionError(f"{block.place}: no program is declared that reads YAML with {keys}")
