"""Checks for doctor: which lock fits the driver, and whether profzoo was tried with the versions that are installed."""

from profzoo import versions
from profzoo.machine import choose_lock
from profzoo.machine.doctor_checks import Finding


def describe_drivers() -> str:
    """Return the oldest driver for each release of torch.

    >>> describe_drivers()
    'torch 2.8 to 2.10 needs driver 525, later ones 580'
    """
    first, *others = versions.BUILDS
    told = [f"torch {first.releases} needs driver {choose_lock.oldest_driver(first)}"]
    told += [
        f"{build.releases if build.newest else 'later ones'} {choose_lock.oldest_driver(build)}" for build in others
    ]
    return ", ".join(told)


def check_lock() -> Finding:
    """Say which lock fits the driver, and which driver each release of torch needs."""
    driver, _ = choose_lock.find_driver()
    fitting = choose_lock.fit_driver(driver) if driver else choose_lock.USUAL
    if fitting is None:
        advice = f"update the driver to {choose_lock.oldest_useful_driver()} or later"
        return Finding("lock", f"none fits ({describe_drivers()})", advice)
    return Finding("lock", f"{fitting.lock} ({describe_drivers()})")


def check_versions() -> Finding:
    """Say which versions are installed, and with which of them profzoo was not tried."""
    names = [one.package for one in versions.SUPPORTED if one.package != versions.PYTHON]
    told = [versions.describe_tried(*one) for one in versions.read_installed(names).items()]
    return Finding("versions", ", ".join(told))
