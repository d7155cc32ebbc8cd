"""Packs the results of cells into archives of limited size, without what no table is made of."""

import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

# Reports whose exports hold all that is read, and weights, which are random.
LEFT_OUT = (".nsys-rep", ".ncu-rep", ".pt")
# Results of all cells.
SHARED = ("peaks",)
# Estimated bytes of one archive; an export of nsys becomes a quarter or less, and a compressed trace stays as it is.
LARGEST = 12 << 20
WEIGHTS = {".gz": 1.0, ".sqlite": 0.25}
OTHERWISE = 0.3


def packed_size(path: Path) -> float:
    """About how many bytes a file takes in an archive."""
    return path.stat().st_size * WEIGHTS.get(path.suffix, OTHERWISE)


def files_below(folder: Path) -> list[Path]:
    """Files of a cell that are packed."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path for path in found if path.suffix not in LEFT_OUT)


def group_names(results: Path, names: Iterable[str], most: float) -> list[list[str]]:
    """Names of cells in groups of no more than so many packed bytes, each group at least one cell."""
    groups: list[list[str]] = [[]]
    taken = 0.0
    for name in names:
        size = sum(map(packed_size, files_below(results / name)))
        if groups[-1] and taken + size > most:
            groups.append([])
            taken = 0.0
        groups[-1].append(name)
        taken += size
    return groups


def pack(results: Path, names: Sequence[str], into: Path, label: str, most: float = LARGEST) -> list[Path]:
    """Write `LABEL-1.tar.xz` and so on, each with some of the cells; returns them. All hold what cells share."""
    into.mkdir(parents=True, exist_ok=True)
    shared = [name for name in (*SHARED, *(f"logs/{one}" for one in SHARED)) if (results / name).is_dir()]
    archives = []
    for number, group in enumerate(group_names(results, names, most), 1):
        archive = into / f"{label}-{number}.tar.xz"
        with tarfile.open(archive, "w:xz", preset=1) as packed:
            for name in (*shared, *group):
                for path in files_below(results / name):
                    packed.add(path, Path("results") / path.relative_to(results))
        archives.append(archive)
    return archives
