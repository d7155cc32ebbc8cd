"""Formats durations, counts and lists for the terminal."""

from collections.abc import Sequence


def format_estimate(seconds: float) -> str:
    """Format an estimated duration, as precisely as an estimate deserves.

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


def format_duration(seconds: float) -> str:
    """Format a measured duration.

    >>> format_duration(7.24), format_duration(224.09)
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
