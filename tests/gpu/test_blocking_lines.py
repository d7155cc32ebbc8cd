"""Lines at which a model's step and a script's step wait, on a real GPU, against the marks in their source.

Together the two runs take half a minute.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from profzoo.cell.job_types import BlockingLine
from tests.gpu.programs import waits

PROJECT = Path(__file__).parents[2]
MODEL, SCRIPT = Path(waits.__file__), PROJECT / "tests" / "scripts" / "waits.py"


def measure(folder: Path, *words: str) -> list[BlockingLine]:
    """Lines in the facts of a run that times three steps."""
    facts = folder / "facts.json"
    command = [sys.executable, "-m", "models.run", *words, "window=3", "--facts", facts, "--steps", folder / "s.csv"]
    answer = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "synchronizing" not in answer.stderr and "prototype" not in answer.stderr, answer.stderr
    found: list[BlockingLine] = json.loads(facts.read_text())["blocking_lines"]
    return found


def by_line(found: list[BlockingLine], file: str) -> dict[int, int]:
    assert {one["file"] for one in found} == {file}, found
    counted: Counter[int] = Counter()
    for one in found:
        counted[one["line"]] += one["calls"]
    return dict(counted)


def test_each_wait_of_a_model_is_named_by_its_line(tmp_path: Path) -> None:
    found = measure(tmp_path, "waits", "train", f"module={waits.__name__}")
    assert by_line(found, str(MODEL.relative_to(PROJECT))) == waits.marked(MODEL)
    operations = {(one["operation"], one["range"]): one["calls"] for one in found}
    assert operations == {
        ("bool()", "forward"): 3,
        ("values[mask]", "forward"): 1,
        ("torch.nonzero()", "forward"): 1,
        ("torch.cuda.synchronize()", "forward"): 1,
        (".synchronize()", "forward"): 1,
        ("torch.tensor()", "forward"): 1,
        (".item()", "backward"): 1,
        (".update()", "backward"): 1,
        (".item()", ""): 8,
        (".cpu()", ""): 1,
        (".tolist()", ""): 1,
    }


def test_each_wait_of_a_script_is_named_by_its_line(tmp_path: Path) -> None:
    found = measure(tmp_path, "waiting", "train", f"command=python {SCRIPT}")
    assert by_line(found, str(SCRIPT.relative_to(PROJECT))) == waits.marked(SCRIPT)
    assert {(one["operation"], one["calls"]) for one in found} >= {
        (".item()", 4),
        (".backward()", 1),
        ("bool()", 1),
        ("scores[kept]", 1),
        ("nn.utils.clip_grad_norm_()", 1),
        ("torch.cuda.empty_cache()", 1),
    }


def test_a_model_that_does_not_wait_has_no_such_line(tmp_path: Path) -> None:
    assert measure(tmp_path, "mobilenetv2", "train", "batch=2") == []
