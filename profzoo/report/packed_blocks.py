"""Pack what a page shows only when a reader comes to it, and unpack it where the page's text is searched.

A block is a script element with a text, deflated and in base64; the page's own script unpacks it when it is shown.
"""

import base64
import re
import zlib

from markupsafe import Markup

from profzoo.errors import DataError

# How hard zlib tries.
LEVEL = 9
BLOCK = re.compile(r'<script type="application/zlib" class="(data|drawn)">([A-Za-z0-9+/=]*)</script>')
# What stands around a block while it is unpacked. No text of the page contains this: there `<` is escaped.
OPENED = re.compile(r"<!--unpacked (data|drawn)-->(.*?)<!--end of unpacked-->", re.DOTALL)
# Data are unpacked into an element of their own, so that their strings are known as such.
DATA = '<script type="application/json">{}</script>'


def pack_data(text: str) -> Markup:
    """Return the block of a text from which the page's script draws.

    >>> pack_data('{"a":1}')
    Markup('<script type="application/zlib" class="data">eNqrVkpUsjKsBQAIKgIJ</script>')
    """
    return _pack_block("data", text)


def pack_drawn(text: str) -> Markup:
    """Return the block of an element that the page's script inserts as it is."""
    return _pack_block("drawn", text)


def _pack_block(kind: str, text: str) -> Markup:
    packed = base64.b64encode(zlib.compress(text.encode(), LEVEL)).decode()
    return Markup(f'<script type="application/zlib" class="{kind}">{packed}</script>')


def list_blocks(page: str, kind: str) -> list[str]:
    """Return the texts of a page's blocks of a kind (`data` or `drawn`), in order.

    Raises:
        DataError: a block is damaged.

    >>> list_blocks(f"<p>{pack_data('[1]')}{pack_drawn('<svg/>')}</p>", "drawn")
    ['<svg/>']
    """
    return [_unpack(packed) for found, packed in BLOCK.findall(page) if found == kind]


def unpack_blocks(page: str) -> str:
    """Return the page with its blocks as plain text, each between two comments.

    Raises:
        DataError: a block is damaged.
    """
    return BLOCK.sub(_open_block, page)


def pack_blocks(page: str) -> str:
    """Return the page that unpack_blocks unpacked, with its blocks packed.

    >>> page = f"<p>{pack_data('[1]')}{pack_drawn('<svg/>')}</p>"
    >>> pack_blocks(unpack_blocks(page)) == page
    True
    """
    begin, end = DATA.split("{}")
    return OPENED.sub(lambda one: _pack_block(one[1], one[2].removeprefix(begin).removesuffix(end)), page)


def _open_block(block: re.Match[str]) -> str:
    text = _unpack(block[2])
    return f"<!--unpacked {block[1]}-->{DATA.format(text) if block[1] == 'data' else text}<!--end of unpacked-->"


def _unpack(packed: str) -> str:
    try:
        return zlib.decompress(base64.b64decode(packed, validate=True)).decode()
    except (ValueError, zlib.error) as error:
        raise DataError(f"a block of the page is damaged: {error}") from None
