"""Print what this machine can profile: one line per requirement, what was found, and what to do if it is missing."""

import os
import platform
import sys

from profzoo import tools
from profzoo.errors import ConfigError
from profzoo.machine import doctor_checks, gpus
from profzoo.machine.doctor_checks import Finding
from profzoo.tools.torch import doctor as torch_doctor

FILES = ("tools/*/doctor.py",)
EXTENDED = ("tools/*/doctor.py",)


def check_gpu() -> Finding:
    """Check whether the driver shows a GPU."""
    advice = "run on a machine with an NVIDIA GPU, or profile on the CPU with tool=torch"
    try:
        found, none = gpus.query_nvidia_smi()
        visible = gpus.list_visible_gpus(os.environ)
    except ConfigError as error:
        return Finding("GPU", "not known", str(error))
    if visible:
        described = [", ".join(gpu[key] for key in ("gpu", "gpu_memory") if key in gpu) for gpu in visible]
        return Finding("GPU", "; ".join(described))
    if found:
        hidden = f"{gpus.VISIBLE} = '{os.environ.get(gpus.VISIBLE)}' hides {len(found)}"
        return Finding("GPU", f"none ({hidden})", f"unset {gpus.VISIBLE}, or let it name a GPU")
    return Finding("GPU", f"none ({none})", advice)


def check_driver() -> Finding:
    """Check the driver's version, and whether it is new enough for the CUDA version of torch."""
    visible = doctor_checks.find_usable_gpus()
    if not visible:
        return Finding("driver", "none", "install the NVIDIA driver where there is a GPU")
    driver = visible[0]["driver"]
    _, cuda, available, _ = (torch_doctor.read_torch_versions().stdout.split() + [""] * 4)[:4]
    # NVIDIA's packages for forward compatibility let some GPUs work with an older driver.
    old = None if available == "True" else gpus.explain_old_driver(driver, cuda)
    return Finding("driver", driver, f"{old}: update the driver" if old else None)


def main() -> int:
    """Print the findings and what can be profiled; the exit code is 0 even if something is missing."""
    # A batch system chooses the node, so the user may not know it.
    print(f"Checks on {platform.node()}:")
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    doctors = tools.doctors().values()
    lacking = set()
    for check in (check_gpu, check_driver, *(check for doctor in doctors for check in doctor.list_checks())):
        finding = check()
        mark = "ok" if finding.advice is None else "--"
        if colour:
            mark = f"\033[{'32' if finding.advice is None else '33'}m{mark}\033[0m"
        print(f"{mark}  {finding.name:<14} {finding.found}")
        if finding.advice:
            lacking.add(finding.name)
            print(f"    {'':<14} -> {finding.advice}")
    able = [how for doctor in doctors if (how := doctor.describe_use(frozenset(lacking)))]
    print(f"\nThis machine can profile with: {', '.join(able) or 'nothing yet'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
