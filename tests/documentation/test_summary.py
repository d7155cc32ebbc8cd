"""Every documented block and command is checked in a declared way, and those that nothing runs are few and named."""

from tests.documentation import summary
from tests.documentation.declared import Way
from tests.documentation.summary import Row


def test_every_block_has_a_way(capsys) -> None:  # type: ignore[no-untyped-def]
    rows = list(summary.all_rows())
    left = [row for row in rows if row.way is Way.NOT_HERE]
    assert all(row.why for row in left)
    with capsys.disabled():
        print("\n" + "\n".join(summary.format_table(rows)))
    assert len(rows) > 150 and len(left) < len(rows) / 4


def test_the_table_counts_and_names_what_is_not_run() -> None:
    rows = [
        Row("yaml", Way.CONFIGURATION, "a.md:1", "a: 1"),
        Row("yaml", Way.CONFIGURATION, "a.md:5", "b: 1"),
        Row("command of a block", Way.NOT_HERE, "a.md:9", "docker run", "no network"),
    ]
    head, _, blocks, _, yaml, *_ = summary.format_table(rows)
    assert head == "| | read as configuration | not run | all |"
    assert blocks == "| command of a block | 0 | 1 | 1 |" and yaml == "| yaml | 2 | 0 | 2 |"
    assert summary.format_table(rows)[-1] == "- 1 x docker: no network"
