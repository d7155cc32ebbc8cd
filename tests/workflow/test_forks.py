"""The rules' scripts and cells of these tests run in forks, and not in Pythons of their own, which only costs time."""

from tests.workflow.project import Project

# Written into a program: says in which process it runs.
SAYS = "from pathlib import Path as Said\n\nSaid({!r}).write_text(Said('/proc/self/cmdline').read_text())\n"


def test_scripts_and_cells_run_in_forks(fresh: Project) -> None:
    """A server refuses programs whose variables differ from its own. They would run all the same, but slower."""
    programs = {"workflow/scripts/export_torch.py": "script", "models/lstm.py": "cell"}
    for path, name in programs.items():
        fresh.write(path, fresh.read(path) + SAYS.format(str(fresh.root / name)))
    fresh.snakemake("results/lstm/train.torch.csv")
    for name in programs.values():
        assert "fork_server.py" in fresh.read(name), name
