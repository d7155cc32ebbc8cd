"""Formats durations, sizes and ratios for readers."""

import math
import textwrap
from collections.abc import Iterable, Sequence

LARGEST_PLACES = 4
# Place at which a row says something, behind its name.
INDENT = 8
# Width of lines that do not go to a terminal, or to one whose width is not known.
ENDLESS = 10_000
# The most places by which it is shown on which side of a threshold a number lies.
MOST_PLACES = 6


def format_ns(ns: float) -> str:
    """Format a time in a suitable unit; ns: the time in ns.

    >>> format_ns(12_345_678)
    '12.3 ms'
    >>> format_ns(3.87e9)
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
    first, second = format_ns(one), format_ns(other)
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


def fixed(value: float, threshold: float, places: int) -> str:
    """Format a number with so many places, and more where these would hide on which side of a threshold it lies.

    >>> fixed(1.004, 1, 2), fixed(0.998, 1, 2), fixed(1.48, 1, 2), fixed(1.0, 1, 2), fixed(1.34, 1.3, 1)
    ('1.004', '0.998', '1.48', '1.00', '1.34')
    """
    return f"{value:.{_places_beside(value, (threshold,), places)}f}"


def percent(share: float, threshold: float, places: int = 0) -> str:
    """Format a share in percent; places as in `fixed`.

    >>> percent(0.2496, 0.25), percent(0.25, 0.25), percent(0.314, 0.25), percent(0.053, 0.05)
    ('24.96%', '25%', '31%', '5.3%')
    """
    return f"{fixed(share * 100, threshold * 100, places)}%"


def gains(*values: float) -> tuple[str, ...]:
    """Format gains that belong together with the same places: two, or more where these would hide which are above 1.

    >>> gains(1.48, 1.004, 2.16), gains(1.2, 1.1), gains(1.0)
    (('1.480', '1.004', '2.160'), ('1.20', '1.10'), ('1.00',))
    """
    places = max(_places_beside(value, (1.0,), 2) for value in values)
    return tuple(f"{value:.{places}f}" for value in values)


def gain_with_interval(gain: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Format a gain, and its interval with the same places: empty without an upper end, one end without a lower one.

    >>> gain_with_interval(1.48, 1.004, 2.16), gain_with_interval(1.5, None, 2.0), gain_with_interval(1.5, None, None)
    (('1.480', '1.004 to 2.160'), ('1.50', 'at most 2.00'), ('1.50', ''))
    """
    if high is None:
        return gains(gain)[0], ""
    told, *ends = gains(gain, *([] if low is None else [low]), high)
    return told, f"at most {ends[0]}" if low is None else " to ".join(ends)


def _places_beside(value: float, thresholds: Sequence[float], places: int) -> int:
    """Return the least number of places that leave a number on the same sides of thresholds as without rounding."""
    for found in range(places, MOST_PLACES + 1):
        shown = round(value, found)
        if all((value > one, value < one) == (shown > one, shown < one) for one in thresholds):
            return found
    return places


def number(value: float, digits: int = 3) -> str:
    """Format a number with significant digits, all digits before the point, and without a power of ten.

    >>> number(12345.6), number(999.96), number(2.0), number(0.06251), number(1e-5), number(0)
    ('12,346', '1,000', '2', '0.0625', '0.00001', '0')
    """
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def tick(value: float, _: object = None) -> str:
    """Format a number of an axis, as matplotlib asks for it.

    >>> tick(1e6), tick(2500.0), tick(0.0625)
    ('1,000,000', '2,500', '0.0625')
    """
    return number(value, 4)


def ratio(value: float, low: float, high: float, margin: float = 0.0) -> tuple[str, str]:
    """Format a ratio, and its interval in brackets.

    Both have at least three digits, and enough places to distinguish the ends, and to show on which side of 1 and of
    the margin around 1 each lies. The interval is empty if it is NaN.

    >>> ratio(1.02898, 1.028, 1.02996), ratio(0.51, 0.43, 0.62), ratio(1.5, math.nan, math.nan)
    (('1.029', '[1.028, 1.030]'), ('0.510', '[0.430, 0.620]'), ('1.50', ''))
    >>> ratio(1.48, 1.004, 2.16), ratio(1.0, 0.99, 1.0204, margin=0.02)
    (('1.480', '[1.004, 2.160]'), ('1.0000', '[0.9900, 1.0204]'))
    >>> ratio(math.nan, math.nan, math.nan)
    ('nan', '')
    """
    sides = (1.0, 1 + margin, 1 / (1 + margin))
    places = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 2
    # What is NaN lies on neither side.
    places = max(_places_beside(one, sides, places) for one in (value, low, high))
    if math.isnan(low) or math.isnan(high):
        return f"{value:.{places}f}", ""
    # Ends that are equal to four places are shown as equal.
    if high > low and (needed := -math.floor(math.log10(high - low))) <= LARGEST_PLACES:
        places = max(places, needed)
    return f"{value:.{places}f}", f"[{low:.{places}f}, {high:.{places}f}]"


def describe_clock(tool: str) -> str:
    """Return what is said of a step that a tool timed; empty for an unprofiled step.

    >>> describe_clock("torch.profiler")
    'as timed under torch.profiler, which makes steps longer'
    """
    return tool and f"as timed under {tool}, which makes steps longer"


def format_rows(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return lines that name what they say, as the end of a run has them; width: characters that a line may have.

    >>> format_rows([("time", "20 ms per step, 50 samples/s")], 30)
    ['time    20 ms per step, 50', '        samples/s']
    """
    return fold_lines((name_line(name, what) for name, what in rows), width)


def fold_lines(lines: Iterable[str], width: int) -> list[str]:
    """Return lines that are no longer than the width; what goes on stands below what a row says."""
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=" " * INDENT)]


def align(table: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of a table for a terminal."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def name_line(name: str, what: str) -> str:
    """Return the line of a row, however long."""
    return f"{name:<{INDENT}}{what}"


def format_estimate(seconds: float) -> str:
    """Format an estimate in seconds, as precisely as an estimate deserves.

    >>> format_estimate(7.2), format_estimate(43), format_estimate(260), format_estimate(5000), format_estimate(9000)
    ('7 s', '45 s', '4 min', '1 h 25 min', '2 h 30 min')
    """
    if seconds < 20:
        return f"{max(1, round(seconds))} s"
    if seconds < 90:
        return f"{5 * round(seconds / 5)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    minutes = 5 * round(minutes / 5)
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def format_seconds(seconds: float) -> str:
    """Format a measured time in seconds, as people say it.

    >>> format_seconds(7.24), format_seconds(224.09)
    ('7.2 s', '3 min 44 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_count(number: int, what: str) -> str:
    """Format a number of things.

    >>> format_count(1, "cell"), format_count(42, "cell")
    ('1 cell', '42 cells')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def list_names(names: Sequence[str]) -> str:
    """Join names as in a sentence.

    >>> list_names(["time"]), list_names(["time", "nsys", "torch"])
    ('time', 'time, nsys and torch')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def join_first_names(names: Sequence[str], most: int) -> str:
    """Join at most `most` names.

    >>> join_first_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 0 else ", ".join(names)
