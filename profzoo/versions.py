"""Declares the versions of Python and of packages that profzoo works with, and refuses older ones in one line.

The workflow runs this file by its path before it can import the package, and `make env` before anything is installed.
So this file imports nothing but Python's own modules.
"""

import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import NamedTuple


class Supported(NamedTuple):
    """Releases of a package that profzoo works with: from `oldest` on, and before `below` if there is such a release.

    tried: beginnings of the releases with which `make versions` or the whole test suite was run.
    """

    package: str
    oldest: str
    below: str | None
    tried: tuple[str, ...]


class TorchBuild(NamedTuple):
    """Releases of torch whose packages on PyPI are built for one major version of CUDA.

    oldest, newest: the first and the last of these releases; newest is None for those that still come.
    cuda: the version of CUDA, or its major version if these releases differ in the minor one.
    lock: the file that pins one of these releases, `locked`.
    """

    oldest: str
    newest: str | None
    cuda: str
    lock: str
    locked: str

    @property
    def major(self) -> str:
        """Major version of CUDA, which decides about the driver."""
        return self.cuda.partition(".")[0]

    @property
    def releases(self) -> str:
        """These releases in words, such as `2.8 to 2.10`."""
        return f"{self.oldest} to {self.newest}" if self.newest else f"{self.oldest} or later"


# profzoo's own release; pyproject.toml and CITATION.cff state the same.
RELEASE = "0.1.0"
PYTHON = "Python"
# pyproject.toml has the same ranges, and a test compares them.
SUPPORTED = (
    Supported(PYTHON, "3.11", None, ("3.11", "3.12", "3.13", "3.14")),
    Supported("snakemake", "9.27", "10", ("9.27",)),
    Supported("torch", "2.8", "3", ("2.8", "2.9", "2.10", "2.11", "2.14", "2.15")),
    Supported("torchvision", "0.23", None, ("0.23", "0.24", "0.25", "0.26", "0.29")),
    Supported("pandas", "3", "4", ("3.0", "3.1")),
    Supported("numpy", "2", None, ("2.",)),
)
# Sources: the dependencies that the packages on PyPI declare; PyTorch's RELEASE.md, table of release compatibility.
BUILDS = (
    TorchBuild("2.8", "2.10", "12.8", "requirements-cuda12.lock", "2.10"),
    TorchBuild("2.11", None, "13", "requirements.lock", "2.11"),
)


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version; empty if it begins with none.

    >>> release_numbers("2.8.0a0+34c6371d24.nv25.8"), release_numbers("unknown")
    ((2, 8, 0), ())
    """
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def read_installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the version of Python, and of each of these packages that is installed here; nothing is imported."""
    found = {PYTHON: platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe_release() -> str:
    """Return profzoo's release, and the versions of Python and of the packages that decide what it measures."""
    here = read_installed(("snakemake", "torch"))
    return f"profzoo {RELEASE} ({', '.join(f'{name} {version}' for name, version in here.items())})"


def explain_too_old(installed: Mapping[str, str] | None = None) -> str | None:
    """Explain in one line which installed versions are too old for profzoo, and what to do; None if none is.

    A package that is missing, or whose version has no number, is left to those who import it.

    installed: versions by package; None reads those that are installed here.

    >>> (explain_too_old({"Python": "3.12.1", "torch": "2.6.0+cu124", "pandas": "3.0.0"}) or "").partition(":")[0]
    'torch 2.6.0+cu124 is too old, because profzoo needs 2.8 or later'
    """
    here = read_installed(one.package for one in SUPPORTED if one.package != PYTHON) if installed is None else installed
    old = [
        f"{one.package} {here[one.package]} is too old, because profzoo needs {one.oldest} or later"
        for one in SUPPORTED
        if () < release_numbers(here.get(one.package, "")) < release_numbers(one.oldest)
    ]
    if not old:
        return None
    python = SUPPORTED[0].oldest
    make = f"make env PYTHON=/path/to/python{python}" if old[0].startswith(PYTHON) else "make env"
    return f"{'; '.join(old)}: run `{make}` in profzoo's folder, and then `. .venv/bin/activate`"


def describe_tried(package: str, version: str) -> str:
    """Return a package and its version in words, and whether profzoo was tried with this release.

    >>> describe_tried("snakemake", "9.27.1"), describe_tried("torch", "2.7.1")
    ('snakemake 9.27.1', 'torch 2.7.1 (not tried)')
    """
    tried = next(one.tried for one in SUPPORTED if one.package == package)
    known = any(f"{version}.".startswith(begins if begins.endswith(".") else f"{begins}.") for begins in tried)
    return f"{package} {version}" + ("" if known else " (not tried)")
