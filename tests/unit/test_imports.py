"""What planning, parsing and drawing import: not torch, which takes seconds; and collecting, not even pandas."""

import subprocess
import sys

from profzoo import import_graph

# What runs inside a profiled process, which has it anyway.
INSIDE = [
    import_graph.PROJECT / "profzoo" / name for name in ("calibration", "experiments", "harness", "script_harness")
]
TRIED = """
import importlib, sys
for name in {names}:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{{name}} imports torch")
"""


def test_torch_is_imported_by_what_runs_inside_alone() -> None:
    """All in one process: the first that imports it is named."""
    files = sorted(
        path
        for path in (import_graph.PROJECT / "profzoo").rglob("*.py")
        if not any(path.is_relative_to(folder) for folder in INSIDE)
    )
    names = [".".join(path.relative_to(import_graph.PROJECT).with_suffix("").parts) for path in files]
    light = ["models.run", *(name for name in names if "__main__" not in name)]
    assert len(light) > 50
    command = [sys.executable, "-c", TRIED.format(names=light)]
    run = subprocess.run(command, cwd=import_graph.PROJECT, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_collecting_job_begins_without_libraries_that_take_long_to_load() -> None:
    """Each would take more time than all else before the program starts, in every job of the zoo."""
    code = "import sys, profzoo.collect.__main__; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=import_graph.PROJECT, text=True).split()
    assert "profzoo.collect.job_run" in loaded
    assert not {"numpy", "pandas", "torch", "jsonschema", "snakemake"} & set(loaded)


def test_a_collecting_job_loads_no_other_tools_parsers() -> None:
    """Which it does once its program has ended."""
    code = "import sys; from profzoo import tools; tools.losses('time'); tools.losses('nsys'); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=import_graph.PROJECT, text=True).split()
    assert not {"numpy", "pandas"} & set(loaded)


def test_snakemake_begins_without_them() -> None:
    """What every start of it, and of each of its jobs, checks the configuration by."""
    names = "profzoo.config.configuration, profzoo.tools.ncu.census, profzoo.tools.ncu.costs, profzoo.tools as tools"
    code = f"import sys, {names}; tools.commands(); tools.files(); tools.failures(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=import_graph.PROJECT, text=True).split()
    assert "profzoo.tools.ncu.files" in loaded and not {"numpy", "pandas", "torch"} & set(loaded)
    # By advice it plans trials, which takes tables, but nothing that is slower to load than all else.
    code = "import sys, profzoo.trials.candidate_settings; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=import_graph.PROJECT, text=True).split()
    assert "pandas" in loaded and not {"scipy", "torch"} & set(loaded)


def test_what_rules_call_begins_without_them() -> None:
    """A start of Snakemake loads it all; plugins of Snakemake's load what they like before."""
    files = [
        *(import_graph.PROJECT / "profzoo/workflow").glob("*.py"),
        *(import_graph.PROJECT / "profzoo/terminal").glob("*.py"),
    ]
    names = [".".join(path.relative_to(import_graph.PROJECT).with_suffix("").parts) for path in files]
    code = (
        "import importlib, sys, snakemake.cli, snakemake.scheduling.job_scheduler\n"
        "for name in [one for one in sys.modules if one.split('.')[0] in ('pandas', 'numpy', 'torch')]:\n"
        "    sys.modules[name] = None\n"
        f"sys.modules.update(dict.fromkeys(('pandas', 'numpy', 'torch')))\nfor name in {names}:\n"
        "    importlib.import_module(name)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=import_graph.PROJECT, check=False, capture_output=True, text=True
    )
    assert len(names) > 25 and run.returncode == 0, run.stderr


def test_who_tabulates_and_reports_begins_without_what_few_need() -> None:
    """It would take longer to load than most tables take to make."""
    code = "import sys, profzoo.report.page, profzoo.verdicts.verdict_table; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=import_graph.PROJECT, text=True).split()
    assert "pandas" in loaded and not {"scipy", "torch"} & set(loaded)


def test_figures_are_drawn_without_what_few_need() -> None:
    """Of seaborn the theme alone, as it loads longer than a figure takes to draw; a heat map is the exception."""
    code = "import sys, profzoo.figures.drawing; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=import_graph.PROJECT, text=True).split()
    assert "matplotlib.pyplot" in loaded and not {"scipy", "seaborn", "torch"} & set(loaded)
