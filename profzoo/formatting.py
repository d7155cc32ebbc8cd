"""Formats durations, sizes and ratios for readers."""

import math

LARGEST_PLACES = 4


def duration(ns: float) -> str:
    """Format a time in a suitable unit; ns: the time in ns.

    >>> duration(12_345_678)
    '12.3 ms'
    >>> duration(3.87e9)
    '3.87 s'
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            value = ns / size
            return f"{value:,.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"
    return f"{ns:.0f} ns"


def part_of(part: float, whole: float) -> str:
    """Format a time as a part of a longer one, both in ns, with one unit if they have the same.

    >>> part_of(99e6, 152e6), part_of(3.5e3, 1e6)
    ('99 of 152 ms', '3.5 µs of 1 ms')
    """
    return _join(part, whole, "of")


def span(low: float, high: float) -> str:
    """Format the interval of a time, both ends in ns, with one unit if they have the same.

    >>> span(9.9e6, 10.1e6), span(0, 3.56e6), span(0.9e6, 1.1e6)
    ('9.9 to 10.1 ms', '0 to 3.56 ms', '900 µs to 1.1 ms')
    """
    return _join(low, high, "to")


def _join(one: float, other: float, word: str) -> str:
    first, second = duration(one), duration(other)
    number, _, unit = first.rpartition(" ")
    return f"{number if one == 0 or unit == second.rpartition(' ')[2] else first} {word} {second}"


def size(count: float) -> str:
    """Format a number of bytes in a suitable unit.

    >>> size(880), size(23_456), size(67_108_864), size(25e9), size(1.5e12)
    ('880 bytes', '23 kB', '67 MB', '25 GB', '1.5 TB')
    """
    for unit, of_one in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= of_one:
            value = count / of_one
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
    return f"{count:.0f} bytes"


def estimate(count: float) -> str:
    """Format an estimated number with two significant digits.

    >>> estimate(777), estimate(36), estimate(123_456)
    ('780', '36', '120,000')
    """
    return f"{float(f'{count:.2g}'):,.0f}"


def ratio(value: float, low: float, high: float) -> tuple[str, str]:
    """Format a ratio, and its interval in brackets.

    Both have at least three digits, and enough places to distinguish the ends. The interval is empty if it is NaN.

    >>> ratio(1.02898, 1.028, 1.02996), ratio(0.51, 0.43, 0.62), ratio(1.5, math.nan, math.nan)
    (('1.029', '[1.028, 1.030]'), ('0.510', '[0.430, 0.620]'), ('1.50', ''))
    """
    places = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 2
    if math.isnan(low) or math.isnan(high):
        return f"{value:.{places}f}", ""
    # Ends that are equal to four places are shown as equal.
    if high > low and (needed := -math.floor(math.log10(high - low))) <= LARGEST_PLACES:
        places = max(places, needed)
    return f"{value:.{places}f}", f"[{low:.{places}f}, {high:.{places}f}]"
