"""How numbers are shown to readers."""


def duration(ns: float) -> str:
    """A time in the unit that suits it.

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
