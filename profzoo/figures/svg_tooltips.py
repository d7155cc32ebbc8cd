"""Add hover texts to the marks of a figure, as titles in its SVG file."""

import re
from collections.abc import Sequence

from matplotlib.artist import Artist

# Prefix of the identifier of a group that holds the hover texts of its marks, and separator between these texts.
TITLE_PREFIX, TITLE_SEPARATOR = "told:", " ¦ "
GROUP = re.compile(rf'<g id="{TITLE_PREFIX}([^"]*)">')
POINT = re.compile(r"<use ([^>]*)/>")
# The layout is computed with the first font; browsers without it use another font of about the same width.
FONT, FONTS = "'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"


def attach_titles(artist: Artist, texts: Sequence[str]) -> None:
    """Attach hover texts to an artist's marks, in their order; a single text applies to the whole artist."""
    if texts:
        artist.set_gid(TITLE_PREFIX + TITLE_SEPARATOR.join(text.replace(TITLE_SEPARATOR, " ") for text in texts))


def add_titles(svg: str) -> str:
    """Return the SVG with the attached hover texts as titles, and with fonts that every browser has.

    >>> add_titles('<g id="told:a ¦ b"><use x="1"/><use x="2"/></g>')
    '<g><use x="1"><title>a</title></use><use x="2"><title>b</title></use></g>'
    >>> add_titles('<g id="told:a: 5 %"><path d=""/></g>')
    '<g><title>a: 5 %</title><path d=""/></g>'
    """
    head, *rest = GROUP.split(svg)
    parts = [head]
    for told, body in zip(rest[::2], rest[1::2], strict=True):
        texts = told.split(TITLE_SEPARATOR)
        parts.append(f"<g><title>{told}</title>{body}" if len(texts) == 1 else f"<g>{_title_points(texts, body)}")
    return re.sub(rf"{FONT}(?!,)", FONTS, "".join(parts))


def _title_points(texts: Sequence[str], body: str) -> str:
    """Return the SVG text of a group with a title for each of its points."""
    left = iter(texts)

    def point(use: re.Match[str]) -> str:
        text = next(left, None)
        return use[0] if text is None else f"<use {use[1].rstrip()}><title>{text}</title></use>"

    return POINT.sub(point, body)
