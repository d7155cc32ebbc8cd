"""Prints which lock `make env` installs, and on stderr why: the one whose torch the driver of this machine can run."""

import argparse
import platform
import sys
from collections.abc import Sequence

from profzoo import versions
from profzoo.errors import ConfigError
from profzoo.machine import gpus
from profzoo.versions import TorchBuild

# Where no driver is found, so that models are profiled on the CPU.
USUAL = versions.BUILDS[-1]
MACHINE = "x86_64"


def oldest_driver(build: TorchBuild) -> int:
    """Return the oldest driver that can run these releases of torch."""
    return gpus.OLDEST_DRIVER[build.major]


def oldest_useful_driver() -> int:
    """Return the oldest driver with which any lock has a torch that uses the GPU."""
    return min(map(oldest_driver, versions.BUILDS))


def fit_driver(driver: str) -> TorchBuild | None:
    """Return the newest releases of torch that a driver can run; None if it can run none.

    The oldest driver of each version of CUDA is that of NVIDIA's "CUDA Compatibility", minor version compatibility.

    >>> fit_driver("570.86.15").lock, fit_driver("580.65.06").lock, fit_driver("470.2")
    ('requirements-cuda12.lock', 'requirements.lock', None)
    """
    major = driver.partition(".")[0]
    able = [build for build in versions.BUILDS if major.isdigit() and int(major) >= oldest_driver(build)]
    return able[-1] if able else None


def choose_build(cuda: str, driver: str | None, reason: str) -> tuple[TorchBuild, str]:
    """Choose releases of torch, and say why in words that follow `because`.

    cuda: major version of CUDA that the user chose, or an empty text. driver: version of the driver, None if there is
    none; reason: why there is none.

    Raises:
        ConfigError: no lock has this version of CUDA, or the driver is too old for all locks.
    """
    by_cuda = {build.major: build for build in versions.BUILDS}
    if cuda:
        if cuda not in by_cuda:
            raise ConfigError(f"CUDA={cuda}: there is no lock for it; valid are: {', '.join(by_cuda)}")
        return by_cuda[cuda], f"CUDA={cuda} chooses it"
    if driver is None:
        return USUAL, reason
    fitting = fit_driver(driver)
    if fitting is None:
        raise ConfigError(
            f"driver {driver} is too old for every torch that profzoo works with: update it to "
            f"{oldest_useful_driver()} or later, or run `make env CUDA={USUAL.major}` and profile on the CPU with "
            "device=cpu"
        )
    needed = f"CUDA {fitting.major} needs {oldest_driver(fitting)} or later"
    newer = [build for build in versions.BUILDS if oldest_driver(build) > oldest_driver(fitting)]
    return fitting, f"the driver is {driver}; {needed}" + "".join(
        f", and CUDA {build.major} needs {oldest_driver(build)} or later" for build in newer
    )


def find_driver() -> tuple[str | None, str]:
    """Return the version of this machine's driver, and None with the reason if nvidia-smi shows no GPU."""
    try:
        found, reason = gpus.query_nvidia_smi()
    except ConfigError as error:
        return None, str(error)
    return (found[0]["driver"] if found else None), reason


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lock's name; the exit code is 2 if no lock can be chosen."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.machine.choose_lock", description=__doc__)
    parser.add_argument("cuda", nargs="?", default="", help="major version of CUDA; by default the driver decides")
    cuda = parser.parse_args(arguments).cuda
    driver, reason = (None, "") if cuda else find_driver()
    try:
        build, why = choose_build(cuda, driver, reason)
    except ConfigError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    told = f"{build.lock} with torch {build.locked} for CUDA {build.cuda}, because {why}"
    if build.major == "12" and platform.machine() != MACHINE:
        told += f"; on {platform.machine()} this torch from PyPI has no CUDA and uses the CPU alone"
    print(f"profzoo: {told}", file=sys.stderr)
    print(build.lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
