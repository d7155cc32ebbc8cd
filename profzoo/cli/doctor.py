"""Print what this machine can profile: one line per requirement, what was found, and what to do if it is missing."""

import argparse
import os
import platform
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from profzoo import tools
from profzoo.errors import ConfigError
from profzoo.machine import doctor_checks, gpus
from profzoo.machine.doctor_checks import Finding
from profzoo.tools.torch import doctor as torch_doctor

FILES = ("../tools/*/doctor.py",)
EXTENDED = ("tools/*/doctor.py",)
# Everything fits a screen of so many columns, and 40 lines.
WIDTH = 100
# Columns before what is said of a requirement: a mark and its name.
INDENT = 19


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
    oldest = gpus.OLDEST_DRIVER.get(cuda.partition(".")[0])
    told = f"{driver} (this torch, for CUDA {cuda}, needs {oldest} or later)" if oldest else driver
    # NVIDIA's packages for forward compatibility let some GPUs work with an older driver.
    old = None if available == "True" else gpus.explain_old_driver(driver, cuda)
    other = torch_doctor.suggest_release(driver)
    advice = "update the driver" + (f", or install {other}" if other else "")
    return Finding("driver", told, f"{old}: {advice}" if old else None)


def list_findings(results: Path, expected_bytes: int) -> Iterator[Finding]:
    """Yield the result of each check: of GPU, driver and versions, of this machine, and of what each tool needs.

    results: folder of the results. expected_bytes: size of everything that is selected.
    """
    yield check_gpu()
    yield check_driver()
    yield doctor_checks.check_lock()
    yield doctor_checks.check_versions()
    own = (doctor_checks.check_shared_memory(), doctor_checks.check_ptrace())
    yield from (finding for finding in own if finding)
    yield doctor_checks.check_disk(results, expected_bytes)
    checks = [check for doctor in tools.doctors().values() for check in doctor.list_checks()]
    yield from (finding for check in checks if (finding := check()))


def estimate_bytes(weights: int, cells: int, chosen: Sequence[str]) -> int:
    """Return about how many bytes results take: files of weights, and reports of cells by these tools."""
    doctors = tools.doctors()
    reports = sum(doctors[tool].REPORT_BYTES for tool in chosen if tool in doctors)
    return weights * doctor_checks.WEIGHTS_BYTES + cells * reports


def format_finding(finding: Finding, colour: bool = False) -> list[str]:
    """Format a finding as lines of at most WIDTH columns: what was found, and what to do.

    >>> format_finding(Finding("ncu", "not on PATH", "install it"))
    ['--  ncu            not on PATH', '                   -> install it']
    """
    mark = "ok" if finding.advice is None else "--"
    head = f"{mark}  {finding.name:<14} "
    lines = _wrap(finding.found, head, " " * INDENT)
    if finding.advice:
        arrow = f"{' ' * INDENT}-> "
        lines += _wrap(finding.advice, arrow, " " * len(arrow))
    lines = lines or [head.rstrip()]
    if colour:
        lines[0] = f"\033[{'32' if finding.advice is None else '33'}m{mark}\033[0m{lines[0][len(mark) :]}"
    return lines


def _wrap(text: str, first: str, other: str) -> list[str]:
    """Break a text at its spaces; first, other: what its first line and the others begin with."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=other, break_on_hyphens=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings and what can be profiled; the exit code is 0 even if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.cli.doctor", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results")
    parser.add_argument("--weights", type=int, default=0, help="number of networks that are trained for inference")
    parser.add_argument("--cells", type=int, default=0, help="number of cells that are selected")
    parser.add_argument("--tools", nargs="*", default=[], help="tools that are selected")
    options = parser.parse_args(arguments)
    # A batch system chooses the node, so the user may not know it.
    print(f"Checks on {platform.node()}:")
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    lacking = set()
    for finding in list_findings(options.results, estimate_bytes(options.weights, options.cells, options.tools)):
        print("\n".join(format_finding(finding, colour)))
        if finding.advice:
            lacking.add(finding.name)
    able = [how for doctor in tools.doctors().values() if (how := doctor.describe_use(frozenset(lacking)))]
    print(f"\nThis machine can profile with: {', '.join(able) or 'nothing yet'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
