"""What planning, parsing and drawing import: not torch, which takes seconds; and collecting, not even pandas."""

import subprocess
import sys

import pytest

from profzoo.records.import_graph import PROJECT

# What runs inside a profiled process, which has torch anyway.
FOLDERS, FILES = ("calibration", "experiments", "harness", "script_harness"), ("contestant.py", "inputs.py")
INSIDE = [PROJECT / "profzoo" / name for name in (*FOLDERS, *(f"referee/{name}" for name in FILES))]
# In one process, one after the other: what is imported or run, and what must not be loaded by then.
SLOW_TO_LOAD = {"numpy", "pandas", "torch", "jsonschema", "snakemake", "scipy", "seaborn"}
STAGES = [
    # Each job of the zoo would take that time before its program starts; parsers come once that has ended.
    ("import profzoo.collect.__main__", SLOW_TO_LOAD),
    ("from profzoo import tools; tools.losses('time'); tools.losses('nsys')", SLOW_TO_LOAD),
    # Every start of Snakemake, and of each of its jobs, checks the configuration; by advice it plans trials.
    ("import profzoo.config.configuration, profzoo.tools.ncu.census, profzoo.tools.ncu.costs",
     {"numpy", "pandas", "torch"}),
    ("tools.commands(); tools.files(); tools.failures()", {"numpy", "pandas", "torch"}),
    ("import profzoo.trials.trial_table", {"scipy", "torch"}),
    # What tabulates and reports; of seaborn, figures take the theme alone.
    ("import profzoo.report.page, profzoo.verdicts.causes.verdict_table", {"scipy", "torch"}),
    ("import profzoo.figures.drawing", {"scipy", "seaborn", "torch"}),
]  # fmt: skip
TRIED = """
import importlib, sys
for name in {names}:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{{name}} imports torch")
"""


def modules(*folders: str) -> list[str]:
    """The modules in some folders, but for those that run inside a profiled process."""
    files = [path for name in folders for path in sorted((PROJECT / name).rglob("*.py"))]
    outside = [path for path in files if not any(path.is_relative_to(folder) for folder in INSIDE)]
    return [".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in outside]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=False, capture_output=True, text=True)


def test_each_part_begins_without_libraries_that_take_long_to_load() -> None:
    code = "import sys\n" + "".join(f"{line}\nprint(*sys.modules)\n" for line, _ in STAGES)
    printed = run(code).stdout.splitlines()
    assert len(printed) == len(STAGES)
    for (line, forbidden), names in zip(STAGES, printed, strict=True):
        assert not forbidden & {*names.split()}, line
    loaded = [{*names.split()} for names in printed]
    assert "profzoo.collect.job_run" in loaded[0] and "profzoo.tools.ncu.files" in loaded[3]
    assert "pandas" in loaded[4] and "matplotlib.pyplot" in loaded[-1]


@pytest.mark.slow
def test_torch_is_imported_by_what_runs_inside_alone() -> None:
    """All in one process: the first that imports it is named."""
    light = ["models.run", *(name for name in modules("profzoo") if "__main__" not in name)]
    assert len(light) > 50
    tried = run(TRIED.format(names=light))
    assert tried.returncode == 0, tried.stderr


@pytest.mark.slow
def test_what_rules_call_begins_without_them() -> None:
    """A start of Snakemake loads it all; plugins of Snakemake's load what they like before."""
    names = modules("profzoo/workflow", "profzoo/terminal")
    tried = run(
        "import importlib, sys, snakemake.cli, snakemake.scheduling.job_scheduler\n"
        "for name in [one for one in sys.modules if one.split('.')[0] in ('pandas', 'numpy', 'torch')]:\n"
        "    sys.modules[name] = None\n"
        f"sys.modules.update(dict.fromkeys(('pandas', 'numpy', 'torch')))\nfor name in {names}:\n"
        "    importlib.import_module(name)"
    )
    assert len(names) > 15 and tried.returncode == 0, tried.stderr
