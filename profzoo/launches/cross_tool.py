"""Matches the launches of one tool's step to those of another's: names are normalised, and streams paired."""

from collections import Counter

import numpy as np
import pandas as pd

from profzoo.kernels import kernel_classes
from profzoo.launches.alignment import NONE, Alignment, align
from profzoo.tools.ncu.raw_page import function_name

GRID = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
PARTS_OF_SMEM = ["smem_static_bytes", "smem_dynamic_bytes"]


def align_launches(first: pd.DataFrame, second: pd.DataFrame) -> Alignment:
    """Return the launch of the second step for each launch of the first.

    Args:
        first, second: one row per kernel launch. Rows are in the order of the launching calls if that order is known,
            otherwise in the order of their starts on the GPU. Columns: `mangled`, or else `kernel` or `name` as the C++
            library demangles it; GRID; and, if both tools report them, the shared memory of a block in bytes
            (PARTS_OF_SMEM or `smem_bytes`) and `stream`.

    Launches of several streams may begin in a different order in every run. Therefore sequences that differ are aligned
    stream by stream, unless this leaves no fewer differences. Rows that are ordered by their starts and have no stream
    may be matched wrongly.
    """
    codes = number_launch_keys(first, second)
    if any("stream" not in frame or frame["stream"].isna().any() or frame.empty for frame in (first, second)):
        return align(*codes)
    streams = [frame["stream"].to_numpy() for frame in (first, second)]
    if all(len(np.unique(numbers)) <= 1 for numbers in streams):
        return align(*codes)
    own, other = _numbered(codes, streams)
    count = int(max(own.max(initial=0), other.max(initial=0))) + 1
    whole = align(codes[0] * count + own, codes[1] * count + other)
    if whole.edits == 0:
        return whole
    parts = [(np.flatnonzero(own == number), np.flatnonzero(other == number)) for number in range(count)]
    found = [align(codes[0][mine], codes[1][its]) for mine, its in parts]
    edits = NONE if NONE in [part.edits for part in found] else sum(part.edits for part in found)
    if whole.edits != NONE and (edits == NONE or whole.edits <= edits):
        return whole
    return _together(found, parts, (len(first), len(second)), edits)


def number_launch_keys(first: pd.DataFrame, second: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers for the launches of both frames; equal numbers mean equal kernel and launch configuration.

    Kernels are compared by mangled name if both frames have it, otherwise by demangled name, because torch reports only
    that. If this machine cannot demangle names, kernels are compared by function name. Shared memory is compared if
    every launch has it.

    Args:
        first, second: frames as for align_launches.

    Returns: two arrays of integers, one number per row of `first` and of `second`.
    """
    frames = first, second
    columns = [_names(first, second), *(tuple(frame[name].to_numpy() for frame in frames) for name in GRID)]
    shared = [_shared_memory(frame) for frame in frames]
    if shared[0] is not None and shared[1] is not None:
        columns.append((shared[0], shared[1]))
    codes = np.zeros(len(first) + len(second), dtype=np.int64)
    for column in columns:
        values, _ = pd.factorize(np.concatenate(column))
        _, codes = np.unique(codes * (values.max(initial=0) + 1) + values, return_inverse=True)
    return codes[: len(first)], codes[len(first) :]


def number_kernels(first: pd.DataFrame, second: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers for the launches of both frames as number_launch_keys does; equal numbers mean equal kernels."""
    codes, _ = pd.factorize(np.concatenate(_names(first, second)))
    return codes[: len(first)], codes[len(first) :]


def _names(first: pd.DataFrame, second: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    frames = first, second
    mangled = ["mangled" in frame and bool(frame["mangled"].fillna("").ne("").all()) for frame in frames]
    if all(mangled):
        return first["mangled"].to_numpy(dtype=object), second["mangled"].to_numpy(dtype=object)
    shown = ["kernel" if "kernel" in frame else "name" for frame in frames]
    if kernel_classes.can_demangle():
        shown = ["mangled" if known else name for known, name in zip(mangled, shown, strict=True)]
    # nsys and ncu demangle differently; function names agree among all tools.
    alike = kernel_classes.demangle if kernel_classes.can_demangle() else function_name
    chosen = [frame[name].astype("object") for frame, name in zip(frames, shown, strict=True)]
    found = [names.map({name: alike(name) for name in names.unique()}).to_numpy() for names in chosen]
    return found[0], found[1]


def _shared_memory(frame: pd.DataFrame) -> np.ndarray | None:
    """Return the shared memory in bytes per block of each launch; None if any is unknown."""
    if "smem_bytes" in frame:
        known = frame["smem_bytes"]
    elif set(PARTS_OF_SMEM) <= set(frame):
        known = frame[PARTS_OF_SMEM].sum(axis=1, skipna=False)
    else:
        return None
    return None if known.isna().any() else known.to_numpy(dtype=np.int64)


def _numbered(codes: tuple[np.ndarray, np.ndarray], streams: list[np.ndarray]) -> list[np.ndarray]:
    """Number streams from 0; two matched streams of the two steps get the same number.

    Two streams match if each has the most launches in common with the other. Ties are decided by an equal sequence of
    launches, then by an equal stream number. A stream without a match gets a number that the other step does not use.
    """
    held = [{int(number): own[numbers == number] for number in np.unique(numbers)}
            for own, numbers in zip(codes, streams, strict=True)]  # fmt: skip
    counts = [{number: Counter(own.tolist()) for number, own in one.items()} for one in held]
    alike = np.array(
        [
            [
                4 * (mine & its).total() + 2 * np.array_equal(held[0][number], held[1][other]) + (number == other)
                for other, its in counts[1].items()
            ]
            for number, mine in counts[0].items()
        ]
    )
    names: list[dict[int, int]] = [{}, {}]
    for row, number in enumerate(counts[0]):
        place = int(alike[row].argmax())
        best = alike[row, place]
        if best >= 4 and (alike[row] == best).sum() == 1 and (alike[:, place] >= best).sum() == 1:
            names[0][number] = names[1][list(counts[1])[place]] = len(names[0])
    following = len(names[0])
    for own, one in zip(names, counts, strict=True):
        for number in one:
            if number not in own:
                own[number] = following
                following += 1
    return [np.array([own[int(number)] for number in numbers], dtype=np.int64)
            for own, numbers in zip(names, streams, strict=True)]  # fmt: skip


def _together(
    found: list[Alignment], parts: list[tuple[np.ndarray, np.ndarray]], sizes: tuple[int, int], edits: int
) -> Alignment:
    """Merge per-stream alignments into one of the whole step."""
    partner, of_second = (np.full(size, NONE) for size in sizes)
    for part, (mine, its) in zip(found, parts, strict=True):
        paired = part.partner != NONE
        partner[mine[paired]] = its[part.partner[paired]]
        of_second[its[part.of_second != NONE]] = mine[part.of_second[part.of_second != NONE]]
    return Alignment(partner, of_second, edits)


def aligned_shares(aligned: pd.Series, ns: pd.Series) -> tuple[float, float]:
    """Return the aligned shares of launches and of GPU time, each from 0 to 1; NaN without launches.

    Args:
        aligned: one flag per launch.
        ns: GPU time in ns per launch, with the same index.

    >>> aligned_shares(pd.Series([True, True, False, True]), pd.Series([10, 20, 60, 10]))
    (0.75, 0.4)
    """
    total = float(ns.sum())
    share = float(aligned.mean()) if len(aligned) else float("nan")
    return share, float(ns[aligned].sum()) / total if total else float("nan")
