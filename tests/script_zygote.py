"""Runs scripts with a session attached, each in a fork of one process that has imported torch: `CASES FOLDER`.

This saves the seconds that each process takes to import torch, and torch._dynamo, which the first optimizer of a process
imports. The only difference from real runs is that these were imported before; tests that start the real command cover
this.
"""

import gc
import json
import os
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import nvtx  # noqa: F401
import torch
import torch._dynamo

from profzoo.machine import forks
from profzoo.script_harness import attach, observers, session  # noqa: F401


def run(case: dict[str, Any]) -> None:
    """Run a script with a session."""
    sys.argv = case["words"]
    os.chdir(Path(case["task"]).parent)
    attach.attach(case["task"])
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception as error:
        # Does the same as the start-up hook, which is missing here.
        Path(case["task"]).with_name(f"error-{os.getpid()}.txt").write_text(f"{type(error).__name__}: {error}")
        raise


def main(cases: list[dict[str, Any]]) -> None:
    codes = []
    for case in cases:
        child = os.fork()
        if not child:
            forks.end_process(forks.exit_code(partial(run, case)))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    Path(sys.argv[2]).write_text(json.dumps(codes))


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Forks then share the memory of all objects.
    gc.freeze()
    main(json.loads(Path(sys.argv[1]).read_text()))
