"""Prints how long the sentences of Markdown pages are: `python -m tests.tools.readability [--longest 5] PAGE...`.

Words per sentence, and the share of sentences with more than 25 words. Code, tables, headings and pictures do not count;
an item of a list is a sentence of its own, and a code span or a link counts as the words that it shows.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

LONG = 25
END = re.compile(r"(?<=[.?!])[\"')\]*]*\s+(?=[\"'(\[*`A-Z0-9])")


def sentences(page: str) -> list[str]:
    """The sentences of a page, without markup.

    >>> sentences("# Title\\n\\nRun it.\\nIt [prints](a.md) `x y`, e.g. a line.\\n\\n- one\\n- two\\n  lines\\n\\n| a | b |\\n")
    ['Run it.', 'It prints x, e.g. a line.', 'one', 'two lines']
    """
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->|<[^>]+>|!\[[^]]*\]\([^)]*\)", "", page, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    # A command is one name in its sentence, however many words it has.
    text = re.sub(r"`([^`\s]+)[^`]*`", r"\1", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text)
    kept = [" ".join(block.split()) for block in blocks if block.strip() and not block.lstrip().startswith(("#", "|"))]
    plain = [re.sub(r"^(?:[-*]|\d+\.)\s+|\*\*|(?<!\w)\*|\*(?!\w)", "", block) for block in kept]
    return [sentence.strip() for block in plain for sentence in END.split(block) if sentence.strip()]


def count_words(sentence: str) -> int:
    """The number of words, which have a letter or a digit each."""
    return sum(any(map(str.isalnum, word)) for word in sentence.split())


def describe(name: str, found: Sequence[str]) -> str:
    """A row: the name, the number of sentences, words per sentence, and the share of long sentences."""
    lengths = [count_words(sentence) for sentence in found]
    long = sum(length > LONG for length in lengths) / len(lengths)
    return f"{name:44} {len(lengths):5} {mean(lengths):6.1f} {long:6.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--longest", type=int, default=0, help="so many of the longest sentences are printed too")
    options = parser.parse_args()
    every: list[str] = []
    print(f"{'page':44} {'count':>5} {'words':>6} {'long':>6}")
    for page in options.pages:
        if found := sentences(page.read_text(encoding="utf-8")):
            print(describe(page.as_posix(), found))
            every += found
    print(describe("all", every))
    for sentence in sorted(every, key=count_words, reverse=True)[: options.longest]:
        print(f"{count_words(sentence):4}  {sentence}")


if __name__ == "__main__":
    main()
