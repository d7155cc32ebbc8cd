"""Shared parts of the tests of batch systems."""

from pathlib import Path

from tests.workflow.project import ONE_MODEL, Project, copy

# A cell for a node with a GPU, where it only simulates a run.
ON_GPU = ONE_MODEL.replace("device: cpu", "device: auto")
TARGET = "results/lstm/train.time.csv"
# For a job that must still run when something happens to it.
LONG = {"PYTHON_PAUSE": "train 600"}


def small(root: Path) -> Project:
    """Return a copy of the project with one model and one figure."""
    made = copy(root, ON_GPU)
    made.draw_one()
    return made


def a_failing_job_costs_nothing_else(site: Project) -> None:
    """A model that cannot be built, which shows as it really runs, beside one that can; mended afterwards."""
    path, recording = "models/lstm.py", site.recording
    assert recording
    site.recording = site.root.parent / "recording"
    site.recording.mkdir()
    (site.recording / "unet").symlink_to(recording / "unet")
    whole = site.read(path)
    site.replace(path, "def build(", "def build(shape):\n    raise RuntimeError('broken')\n\n\ndef unused(")
    code, output = site.ended(TARGET, "results/unet/train.time.csv", "--config", "models=[lstm,unet]")
    assert code == 1, output
    assert "lstm train failed with RuntimeError: broken" in site.read("results/logs/lstm/train.time.log")
    assert site.files() == {f"unet/{name}" for name in ("train.memory.csv", "train.time.csv", "train.time.csv.json")}
    site.write(path, whole)
    site.recording = recording
