"""The order in which tests run, and which of them run one after the other in the same process."""

from xdist.scheduler import LoadScopeScheduling

# Files run in this order. Those with long preparations come first (builds, a trace). Then come unit tests, which do
# not need the builds that other tests share; these are made in the meantime.
FIRST = ("tests/workflow/test_columns.py", "tests/workflow/test_nsys.py", "tests/unit/", "tests/")
# Files whose tests share nothing and take seconds each, so that processes can divide them.
SPREAD = {
    f"tests/{name}.py"
    for name in (
        "unit/test_models", "unit/test_needed_zoo", "unit/test_run", "workflow/test_configuration",
        "workflow/test_failures", "workflow/test_generic", "workflow/test_kubernetes", "workflow/test_ncu",
        "workflow/test_rerun", "workflow/test_targets",
    )
}  # fmt: skip
# Files that use the tables of a made-up zoo, or contestants of the referee. A process takes seconds to make the tables, or
# the process that forks, and keeps them, so one runs them all.
ZOO = "the whole zoo"
TOGETHER = {f"tests/unit/test_{name}.py": ZOO for name in ("figures", "savings", "svg_sanitizer", "whole_page")} | {
    f"tests/unit/test_{name}.py": "contestants" for name in ("judge", "judge_cheats")
}


def place(nodeid: str) -> int:
    """Return the place of a test in the order, by its file; tests of one place keep their order."""
    last = nodeid.startswith("tests/workflow/") and not nodeid.startswith(FIRST[:2])
    return len(FIRST) if last else next(index for index, start in enumerate(FIRST) if nodeid.startswith(start))


class ByFile(LoadScopeScheduling):
    """Gives a process its next work: a file, a group of files in TOGETHER, or one test of a file in SPREAD."""

    def schedule(self) -> None:
        """Schedule the tests without changing their order."""
        self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in SPREAD else TOGETHER.get(file, file)
