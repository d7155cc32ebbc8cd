"""Refuses options of a tool that a user gives beside those that the workflow gives."""

from collections.abc import Collection, Mapping, Sequence

from profzoo.errors import ConfigError


def check(
    key: str, words: Sequence[str], own: Mapping[str, str], refused: Mapping[str, str], whole: Collection[str] = ()
) -> None:
    """Pass words that hold none of these options, in full, shortened, or with their value in the same word.

    Args:
        key: of the configuration; words: under it. own: what the workflow gives, with what to change instead; refused:
            what it cannot do with, with why; whole: other options, which some of these only begin with.

    >>> check("ncu.extra", ["-k5"], {"-k": "ncu.kernel_name"}, {})
    Traceback (most recent call last):
    profzoo.errors.ConfigError: ncu.extra holds -k, which the workflow sets itself: change ncu.kernel_name

    Raises:
        ConfigError: one of them is there.
    """
    for word in words:
        if word.partition("=")[0] in whole:
            continue
        if (option := _meant(word, own)) in own:
            raise ConfigError(f"{key} holds {option}, which the workflow sets itself: change {own[option]}")
        if (option := _meant(word, refused)) in refused:
            raise ConfigError(f"{key} holds {option}, which {refused[option]}: remove it")


def _meant(word: str, options: Mapping[str, str]) -> str:
    """The one of these options that a word of the command line is; the word itself without its value, if none."""
    name = word.partition("=")[0]
    if name in options or not name.startswith("-"):
        return name
    if not name.startswith("--"):
        return name[:2]
    # Tools take the beginning of an option for it, where it is the beginning of no other.
    longer = [option for option in options if option.startswith(name)]
    return longer[0] if len(longer) == 1 and len(name) > len("--") else name
