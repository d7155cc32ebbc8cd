"""packed_blocks: what a page packs comes back as it was, and damage is said."""

import re
import zlib

import pytest

from profzoo.errors import DataError
from profzoo.report import packed_blocks

TEXTS = ['{"a":"ü \u003c/script>"}', "[]", '{"a":"</p>"}']


def test_a_page_is_the_same_after_unpacking_and_packing_with_each_text_in_its_place() -> None:
    page = "".join(f"<p>{number}</p>{packed_blocks.pack_data(text)}" for number, text in enumerate(TEXTS))
    page += str(packed_blocks.pack_drawn('<svg><title>1 &lt; 2</title><script type="x"></script></svg>'))
    opened = packed_blocks.unpack_blocks(page)
    assert all(text in opened for text in TEXTS) and "application/zlib" not in opened
    assert packed_blocks.pack_blocks(opened) == page
    assert packed_blocks.list_blocks(page, "data") == TEXTS
    # What a reader of the unpacked page changes is packed.
    changed = packed_blocks.pack_blocks(opened.replace('"a"', '"b"'))
    assert packed_blocks.list_blocks(changed, "data") == [text.replace('"a"', '"b"') for text in TEXTS]


def test_a_page_without_blocks_stays_as_it_is() -> None:
    page = '<script type="application/json" class="data">{}</script><!-- a comment -->'
    assert packed_blocks.pack_blocks(packed_blocks.unpack_blocks(page)) == page


@pytest.mark.parametrize("packed", ["AAAA", "eNqrVkp", "eNqrVkpUsjKsBQAIKgIK"])
def test_a_damaged_block_is_an_error_that_says_so(packed: str) -> None:
    with pytest.raises(DataError, match="a block of the page is damaged"):
        packed_blocks.unpack_blocks(f'<script type="application/zlib" class="data">{packed}</script>')


def test_equal_texts_make_equal_blocks_that_zlib_reads() -> None:
    (block,) = {str(packed_blocks.pack_data("abc" * 1000)) for _ in range(3)}
    assert len(block) < 120 and zlib.decompress(zlib.compress(b"a")) == b"a"
    assert re.fullmatch(r'<script type="application/zlib" class="data">[\w+/=]+</script>', block)
