"""STAND-IN for the GPU that the stand-in of nvidia-smi tells of: cells run on the CPU, because they are told to.

A cell that finds a GPU and cannot use it fails, so tests that pretend one have this folder on PYTHONPATH: Python imports
this module as it starts, which adds `device=cpu` to the words of `python -m models.run`, and to those of what measures
the GPU itself. Jobs go on taking the machine for one with a GPU.
"""

import sys

if sys.orig_argv[1:3] == ["-m", "models.run"]:
    sys.argv.append("device=cpu")
elif sys.orig_argv[1:3] in (["-m", f"profzoo.calibration.{name}"] for name in ("launch_costs", "peaks")):
    sys.argv.append("--device=cpu")
