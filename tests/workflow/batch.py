"""What the tests of batch systems have in common."""

from tests.workflow.project import Project

TARGET = "results/lstm/train.time.csv"
# Steps for a job that is still there when something happens to it.
LONG = ["--config", "time={window: 100000}", "samples=1000030"]


def a_failing_job_costs_nothing_else(site: Project) -> None:
    """A model that cannot be built beside one that can; mended afterwards."""
    path = "models/lstm.py"
    whole = site.read(path)
    site.replace(path, "def build(", "def build(shape):\n    raise RuntimeError('broken')\n\n\ndef unused(")
    code, output = site.ended(TARGET, "results/srcnn/train.time.csv", "--config", "models=[lstm,srcnn]",
                              "settings={srcnn: {size: 32, batch: 1}}")  # fmt: skip
    assert code == 1, output
    assert "lstm train failed with RuntimeError: broken" in site.read("results/logs/lstm/train.time.log")
    assert site.files() == {f"srcnn/{name}" for name in ("train.time.csv", "train.time.csv.json")}
    site.write(path, whole)
