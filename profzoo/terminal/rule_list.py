"""Lists the rules for `snakemake --list`: first the rules for users, then the rules behind them."""

from collections.abc import Iterable, Mapping

TYPED = (
    "all", "report", "figures", "perfetto", "compare", "trials", "doctor", "metrics", "status", "serve", "share",
    "verify", "clean", "help",
)  # fmt: skip
FIRST = "Rules for users; `snakemake help` explains their options:"
THEN = "Rules behind these, which make single files; `snakemake FILE` makes one:"


def format_rules(rules: Mapping[str, str]) -> str:
    """Return the list of rules as text.

    rules: description of each rule, by name.

    >>> print(format_rules({"tabulate": "Join.", "all": "Make."}))
    Rules for users; `snakemake help` explains their options:
    all (Make.)
    <BLANKLINE>
    Rules behind these, which make single files; `snakemake FILE` makes one:
    tabulate (Join.)
    """
    typed = [name for name in TYPED if name in rules]
    others = sorted(set(rules) - set(typed))
    return "\n".join([FIRST, *_lines(typed, rules), *(["", THEN, *_lines(others, rules)] if others else [])])


def _lines(names: Iterable[str], rules: Mapping[str, str]) -> Iterable[str]:
    return (f"{name} ({rules[name]})" if rules[name] else name for name in names)
