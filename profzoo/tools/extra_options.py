"""Refuses options of a tool that the workflow itself gives, or that it cannot work with."""

from collections.abc import Collection, Mapping, Sequence

from profzoo.errors import ConfigError


def check(
    key: str, words: Sequence[str], own: Mapping[str, str], refused: Mapping[str, str], whole: Collection[str] = ()
) -> None:
    """Check that the words contain no refused option, in full, shortened, or with its value in the same word.

    Args:
        key: key of the configuration that holds the words.
        words: options that the user added.
        own: options that the workflow gives, each with the key to change instead.
        refused: options that the workflow cannot work with, each with the reason.
        whole: other options whose beginnings are among the refused ones.

    >>> check("ncu.extra", ["-k5"], {"-k": "ncu.kernel_name"}, {})
    Traceback (most recent call last):
    profzoo.errors.ConfigError: ncu.extra holds -k, which the workflow sets itself: change ncu.kernel_name

    Raises:
        ConfigError: a refused option is among the words.
    """
    for word in words:
        if word.partition("=")[0] in whole:
            continue
        if (option := _meant(word, own)) in own:
            raise ConfigError(f"{key} holds {option}, which the workflow sets itself: change {own[option]}")
        if (option := _meant(word, refused)) in refused:
            raise ConfigError(f"{key} holds {option}, which {refused[option]}: remove it")


def _meant(word: str, options: Mapping[str, str]) -> str:
    """Return which of these options a word stands for; if none, the word without its value."""
    name = word.partition("=")[0]
    if name in options or not name.startswith("-"):
        return name
    if not name.startswith("--"):
        return name[:2]
    # Tools accept the beginning of an option if it is not the beginning of another one.
    longer = [option for option in options if option.startswith(name)]
    return longer[0] if len(longer) == 1 and len(name) > len("--") else name
