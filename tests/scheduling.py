"""In which order tests run, and which of them one after the other in the same process."""

from xdist.scheduler import LoadScopeScheduling

# What takes long to make goes first: a cluster, a trace. The next needs none of the builds that other tests share,
# which are made meanwhile.
FIRST = ("tests/workflow/test_slurm.py", "tests/workflow/test_nsys.py", "tests/unit/", "tests/")
# Files whose tests have nothing of their own to share, each of which takes seconds.
SPREAD = {
    f"tests/{name}.py"
    for name in (
        "unit/test_models", "unit/test_needed_zoo", "unit/test_run", "workflow/test_configuration",
        "workflow/test_failures", "workflow/test_generic", "workflow/test_kubernetes", "workflow/test_ncu",
        "workflow/test_rerun", "workflow/test_resume", "workflow/test_targets",
    )
}  # fmt: skip
# Files that take the tables of a made-up zoo, which a process makes in seconds and keeps.
ZOO = "the whole zoo"
TOGETHER = {
    f"tests/unit/test_{name}.py": ZOO
    for name in ("blocks", "cpu_verdicts", "kernel_names", "promises", "serve", "whole_page")
}


def place(nodeid: str) -> int:
    """The place of a test in the order, by its file; those of a place stay in theirs."""
    last = nodeid.startswith("tests/workflow/") and not nodeid.startswith(FIRST[:2])
    return len(FIRST) if last else next(index for index, start in enumerate(FIRST) if nodeid.startswith(start))


class ByFile(LoadScopeScheduling):
    """Gives a process the next file of tests, the next files that go together, or the next test of a file that is spread."""

    def schedule(self) -> None:
        """Keep the order of the tests."""
        self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in SPREAD else TOGETHER.get(file, file)
