"""Whether a script takes as long per step as the zoo's model that it writes out, and launches the same kernels.

    python -m tests.benchmarks.script_against_zoo [ROUNDS] [MODEL ...]

Processes of `tests/scripts/zoo.py` and of the zoo alternate; a row per model holds the median time per step of both
and the median ratio of a round.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

MODELS = ("mobilenetv2", "vgg16", "resnetv2_50", "inceptionv3", "deeplab", "lstm")
SCRIPT = "tests/scripts/zoo.py"
# Processes that start side by side disturb the one that is timed where a step is bound by its host.
AT_ONCE = "1"
WORDS = ["window=60", "warmup=10"]


def main() -> None:
    """Run the comparison and print it."""
    rounds, *models = sys.argv[1:] or ["3"]
    sides = []
    for number in range(int(rounds)):
        for model in models or MODELS:
            zoo = [f"zoo {model}", ["python", "-m", "models.run", model, "train", *WORDS]]
            command = f"command=python {SCRIPT} {model}"
            script = [f"script {model}", ["python", "-m", "models.run", f"s_{model}", "train", command, *WORDS]]
            sides += [zoo, script] if number % 2 else [script, zoo]
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder) / "steps.csv"
        program = ["python", "-m", "profzoo.experiments.interleaved_runs", "--rounds", json.dumps(sides)]
        program += ["--at-once", AT_ONCE, "--steps", str(steps), "--facts", str(Path(folder) / "facts.json")]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        table = pd.read_csv(steps)
    clock = "gpu_ns" if table["gpu_ns"].notna().all() else "wall_ns"
    table = table[table["step"] >= 10]
    each = table.groupby(["side", "process"])[clock].median().reset_index()
    each["model"] = each["side"].str.split().str[1]
    each["side"] = each["side"].str.split().str[0]
    each["round"] = each.groupby(["side", "model"])["process"].rank().astype(int)
    wide = each.pivot_table(index=["model", "round"], columns="side", values=clock)
    wide["ratio"] = wide["script"] / wide["zoo"]
    found = wide.groupby("model").agg(
        script_ms=("script", "median"), zoo_ms=("zoo", "median"), ratio=("ratio", "median")
    )
    found[["script_ms", "zoo_ms"]] /= 1e6
    print(found.round(4).to_string())
    print(wide["ratio"].unstack().round(4).to_string())


if __name__ == "__main__":
    main()
