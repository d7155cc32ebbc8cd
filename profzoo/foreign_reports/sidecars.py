"""Writes what is known of an imported report: what the file is, its tool and GPU, its steps, and what is missing."""

import gzip
import re
import shutil
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from profzoo.errors import DataError
from profzoo.range_names import IMPORTED
from profzoo.records import digests

# Seconds since 1970 that a trace of torch.profiler can have begun at: from 2018 to 2100.
EARLIEST_S, LATEST_S = 1_514_764_800, 4_102_444_800
UNKNOWN_GPU = "unknown GPU"
# More launches whose times cannot be than this share of all make a report useless.
MOST = 0.1
GZIP = b"\x1f\x8b"
# Bytes at a file's beginning by which its kind is told.
BEGIN = 1 << 16
# Of what no tool's reader reads, how it begins, what that is, and what to do.
UNREADABLE = (
    (b"PK\x03\x04", "is a zip archive", "unpack it, and import the report in it"),
    (b"\xfd7zXZ", "is packed by xz", "unpack it first (`xz -dk`)"),
    (b"(\xb5/\xfd", "is packed by zstd", "unpack it first (`zstd -dk`)"),
    (b"BZh", "is packed by bzip2", "unpack it first (`bzip2 -dk`)"),
    (b"PAR1", "is a Parquet file", "export the report as SQLite (`nsys export --type sqlite`)"),
    (b"\x80\x02", "is a pickle of Python, such as a snapshot of memory", "import a trace instead"),
    (b"\x80\x04", "is a pickle of Python, such as a snapshot of memory", "import a trace instead"),
    (b"version https://git-lfs", "is a pointer of Git LFS and no report", "fetch the file itself (`git lfs pull`)"),
    (b"<", "is a page of HTML or XML and no report", "download the file itself"),
)
REPORTS = {".ncu-rep": "ncu", ".nsys-rep": "nsys", ".qdrep": "nsys"}
OF_NCU = re.compile(r'^\s*"?ID"?\s*[,;\t].*Kernel Name', re.MULTILINE)
OF_NSYS = re.compile(
    r"(?:Total Time|Start|Time \(%\)).*[,;\t].*(?:Instances|CorrId|GrdX|Kern Inst|Num Calls)", re.IGNORECASE
)


def recognise_report(path: str | Path) -> tuple[str, str]:
    """Return the tool whose report a file is by its content, and what it is in words; both empty where nothing tells.

    Raises:
        DataError: it is of a kind that no tool leaves, or empty.
    """
    begin = read_begin(path)
    if not begin.strip():
        raise DataError(f"{path} is empty: make the report again, or copy it again")
    for magic, what, cure in UNREADABLE:
        if begin.startswith(magic):
            raise DataError(f"{path} {what}: {cure}")
    ending = next((end for end in REPORTS if str(path).removesuffix(".gz").endswith(end)), "")
    if ending:
        return REPORTS[ending], f"is a report with the ending {ending}"
    if begin.startswith(b"SQLite format 3"):
        return "nsys", "is an SQLite database, as nsys exports it"
    text = begin.decode("utf-16" if begin[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors="replace").lstrip()
    if text[:1] in ("{", "["):
        return "torch", "is JSON, as torch.profiler writes it"
    if OF_NCU.search(text):
        return "ncu", "is CSV as ncu prints it"
    return ("nsys", "is CSV as `nsys stats` prints it") if OF_NSYS.search(text) else ("", "")


def refuse_other_tool(path: str | Path, tool: str) -> None:
    """Refuse a file that is the report of another tool.

    Raises:
        DataError: it is, or is of a kind that no tool leaves; the message says what to type.
    """
    found, what = recognise_report(path)
    if found and found != tool:
        raise DataError(f"{path} {what}, and was given as {tool}: import it with {found}={path}")


def read_begin(path: str | Path) -> bytes:
    """Return the beginning of a file, unpacked where it is gzipped.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            begin = file.read(BEGIN)
        if not begin.startswith(GZIP):
            return begin
        with gzip.open(path) as packed:
            return packed.read(BEGIN)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is cut off or damaged ({error}): copy it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def unpack_report(path: str, folder: Path) -> str:
    """Return the path of a file, of a gzipped one that of an unpacked copy in a folder, which is made.

    Raises:
        DataError: it is cut off or damaged.
    """
    with Path(path).open("rb") as file:
        if file.read(len(GZIP)) != GZIP:
            return path
    target = folder / Path(path).name.removesuffix(".gz")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with gzip.open(path) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is cut off or damaged ({error}): copy it again") from error
    return str(target)


def file_facts(path: str | Path, form: str) -> dict[str, Any]:
    """Return what a file is: its path as it was given, its size and digest, and its form in words."""
    size = digests.measure_size(Path(path))
    return {"file": str(path), "sha256": digests.compute_digest(Path(path)), "bytes": size, "form": form}


def cell_facts(model: str, steps: int) -> dict[str, Any]:
    """Return a cell's settings as far as an import knows them: which cell it is, and its number of steps."""
    return {"model": model, "phase": IMPORTED, "window": steps, "workload": "", "precision": ""}


def step_facts(found_by: str, wall_ns: np.ndarray, gpu_ns: np.ndarray | None) -> dict[str, Any]:
    """Return what is known of the steps: what they are taken from, and how long each took."""
    return {
        "steps_from": found_by,
        "wall_ns": [int(ns) for ns in wall_ns],
        "gpu_ns": None if gpu_ns is None else [int(ns) for ns in gpu_ns],
    }


def report_facts(
    tool: str, model: str, device: tuple[str, str], steps: Mapping[str, Any], files: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the facts that the sidecar of any imported report has.

    device: its name, and `cuda` or `cpu`. steps: as of `step_facts`. files: as of `file_facts`.
    """
    name, kind = device
    clock = steps["gpu_ns"] or steps["wall_ns"]
    return {
        "tool": tool,
        "device": name,
        "device_type": kind,
        "capture": "run",
        "cell": cell_facts(model, len(clock)),
        "command": [],
        "started": "",
        "torch": "",
        "cuda": None,
        "steps": len(clock),
        "traced_steps": len(clock),
        "step_ns": float(np.median(clock)),
        "imported": {"files": list(files), **steps},
    }


def tell_impossible(path: str, wrong: Mapping[int, tuple[str, str]], count: int) -> list[str]:
    """Return a line about launches that are left out as their times cannot be, none without any.

    wrong: by position among `count` launches, the name of each and why.

    >>> tell_impossible("a.json", {5: ("k", "begins and ends at 0")}, 16)
    ['1 of 16 launches has times that cannot be and is left out: launch 6 (k) begins and ends at 0']

    Raises:
        DataError: they are several and more than MOST of all, so that nothing is known of the others either.
    """
    if not wrong:
        return []
    at, (name, why) = next(iter(wrong.items()))
    first = f"launch {at + 1} ({name[:60]}) {why}"
    if len(wrong) > max(1, MOST * count):
        raise DataError(f"{path}: {len(wrong):,} of {count:,} launches have times that cannot be, such as {first}: "
                        "record it again")  # fmt: skip
    verbs = "has times that cannot be and is" if len(wrong) == 1 else "have times that cannot be and are"
    return [f"{len(wrong):,} of {count:,} launches {verbs} left out: {'' if len(wrong) == 1 else 'such as '}{first}"]


def device_name(names: Mapping[str, Any], used: object) -> str:
    """Return the name of a GPU as far as a report tells it.

    names: of all GPUs, by what the report calls each. used: what it calls the one that ran most launches.

    >>> device_name({"0": "", "1": "H100"}, "0"), device_name({}, "0")
    ('H100', 'unknown GPU')
    """
    alike = {str(name) for name in names.values() if name}
    return str(names.get(used) or "") or (alike.pop() if len(alike) == 1 else "") or UNKNOWN_GPU  # type: ignore[call-overload]


def date_of(epoch_ns: int) -> str:
    """Return when a time in ns since 1970 was, as sidecars have it; empty for what is no such time.

    >>> date_of(1694040009743542000), date_of(4374064379813)
    ('2023-09-06T22:40:09+00:00', '')
    """
    seconds = epoch_ns // 10**9
    if not EARLIEST_S <= seconds <= LATEST_S:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
