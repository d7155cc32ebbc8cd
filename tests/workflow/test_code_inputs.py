"""Every rule names exactly the code that its jobs run: held against what Python loads when it runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo import tools
from profzoo.records import import_graph
from tests.loaded_files import loaded
from tests.workflow.project import CHECKOUT, COLLECTING, STANDINS, copy

CODE = re.compile(r"(?:profzoo|models|workflow/scripts)/[\w./]+")
# Everything that torch.profiler can leave.
TORCH = "torch={repeat: 2, memory: true, tensorboard: true, snapshot: true}"
# A run of a cell whose memory is predicted, and then the project's modules that it has loaded.
RUN = """
import sys
from profzoo import run
words = "hidden=48 layers=1 tokens=8 warmup=1 window=1 --memory /dev/null --remedies".split()
assert run.main(["gpt", "train", "device=cpu", *words, '{"bf16": {"precision": "bf16"}}']) == 0
names = [name for name in sys.modules if name.partition(".")[0] in ("models", "profzoo")]
print(*{sys.modules[name].__file__ for name in names}, sep="\\n")
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Path]]:
    """By rule, the code that its jobs run by their inputs, in a plan of everything for one model."""
    project = copy(tmp_path_factory.mktemp("code") / "project", "models: [gpt, gpt@two]\ndevice: auto\n")
    project.path = (STANDINS,)
    config = [f"tool={','.join(tools.names())}", "ncu={set: survey}", "variants={two: {gpus: 2}}"]
    config += ["candidate=bf16", "weights=trained", "export=json", "nsys={gpu_metrics: true}", TORCH]
    ends = ["torch.streams.csv", "torch-snapshot.csv", "ncu-source.source.csv", "ncu-timeline.instances.png"]
    asked = [f"results/gpt/train.{end}" for end in (*ends, "ncu.launch.csv", "first-plan.csv")]
    asked += ["perfetto", "results/compare.html", "results/gpt@two/train.ncu-ranks.launch.csv"]
    tables = ("compare_parts", "compare_latency", "compare_counters", "trials")
    asked += [f"results/tables/{name}.csv" for name in tables]
    printed = project.snakemake("all", *asked, "--config", *config, "--dry-run", "--forceall").stdout
    for name in ("a.sqlite", "b.csv", "c.json"):
        (project.root / name).touch()
    (project.root / "d.csv").write_text("Time (%),Total Time (ns),Instances,Name\n")
    elsewhere = "imported={one: {nsys: a.sqlite, ncu: b.csv}, two: {nsys: d.csv}, three: {torch: c.json}}"
    # Joint rules are of runs that ask for no single file, and of cells that all have what is joined.
    for config in (["models=one,two,three", "tool=ncu,nsys,torch"], ["models=gpt,three", "tool=nsys,torch"]):
        printed += "\n" + project.snakemake("all", "--config", *config, elsewhere, "--dry-run", "--forceall").stdout
    found: dict[str, set[Path]] = {}
    for block in re.split(r"\n *(?=(?:local)?rule \w+:\n)", printed)[1:]:
        rule, given = block.split(" ", 1)[1].split(":")[0], re.search(r"^ {4,8}input: (.*)$", block, re.MULTILINE)
        code = [CHECKOUT / name for name in (given[1] if given else "").split(", ") if CODE.fullmatch(name)]
        files = set(import_graph.files_of_inputs(code))
        # Jobs of a rule that draws, or runs a model, differ in what they draw or run.
        found[rule] = (found.get(rule) or files) & files
    return found


def scripts() -> dict[str, Path]:
    """By rule, the script that it runs."""
    text = "".join(path.read_text() for path in (CHECKOUT / "workflow/rules").glob("*.smk"))
    # One has no name in its file.
    rules = re.split(r"\n *rule ?(?=\w*:\n)", text)[1:]
    named = {rule.partition(":")[0] or "draw_figures": re.search(r'"\.\./scripts/(\w+\.py)"', rule) for rule in rules}
    return {rule: CHECKOUT / "workflow/scripts" / script[1] for rule, script in named.items() if script}


@pytest.mark.slow
def test_every_rule_that_runs_code_is_in_the_plan(inputs: dict[str, set[Path]]) -> None:
    assert set(scripts()) | COLLECTING <= set(inputs)


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(scripts()))
def test_a_script_is_made_again_by_what_it_loads_and_nothing_else(inputs: dict[str, set[Path]], rule: str) -> None:
    script = scripts()[rule]
    python = {file for file in inputs[rule] if file.suffix == ".py"}
    named = {file for module in python for file in import_graph.declared_files(module)}
    # A joint rule runs those of its parts.
    run = {file for file in python if file.parent == script.parent}
    assert script in run and (len(run) > 1) == (script.name == "run_joined.py")
    # Figures' captions are in their modules.
    shows = rule in ("write_report", "write_comparison", "draw_figures")
    own = {file for file in python if file.parent.name == "figures"} if shows else set()
    besides = sorted(file for file in named | own if file.suffix == ".py")
    really = run.union(*(loaded(file, besides) for file in run))
    # What a section set is collected by is written down anew as well when the cell itself has changed.
    cell = inputs["profile_ncu"] if rule == "settle_ncu" else set()
    assert python == really | {file for file in cell if file.suffix == ".py"}
    assert inputs[rule] - python - cell == {file for file in named if file.suffix != ".py"} - cell


@pytest.mark.slow
def test_a_cell_is_collected_again_by_what_runs_inside_or_around_it(inputs: dict[str, set[Path]]) -> None:
    printed = subprocess.check_output([sys.executable, "-c", RUN], cwd=CHECKOUT, text=True)
    inside = {Path(line) for line in printed.splitlines() if line.startswith("/")}
    around = set(import_graph.files_of("profzoo/collect/environment.py"))
    # What turns words into settings: its outcome is in the job's own words.
    settling = {*import_graph.files_of("profzoo/run.py")} - {*import_graph.files_of("profzoo/harness/step/measure.py")}
    for rule in sorted(COLLECTING):
        assert inside - inputs[rule] <= settling, rule
        assert inputs[rule] - inside <= around, rule
        assert around <= inputs[rule], rule
    assert {path.name for path in settling} >= {"run.py", "settings.py", "registry.py", "schema.py"}


@pytest.mark.slow
def test_other_rules_run_no_code_of_the_project(inputs: dict[str, set[Path]]) -> None:
    # Twins of a rule with a script run that, with other files.
    known = {*scripts(), *(f"{rule}_ranks" for rule in scripts())}
    others = {rule for rule in inputs if rule not in known and not rule.startswith(("profile_", "time_", "try_"))}
    own = {rule: files for rule, files in inputs.items() if rule in others and files}
    assert set(own) == {"train_weights", "measure_peaks", "measure_links"}
