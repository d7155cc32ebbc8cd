"""The table of source lines: pages as ncu 2024.1 and 2025.3 print them, sums by line, spills, and what is missing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables, scripts
from profzoo.tools.ncu import source_lines
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.instances import choose_launches, read_expensive
from profzoo.tools.ncu.source_lines import (
    UNOPENED,
    describe_kernels,
    read_instructions,
    read_lines,
    split_row,
    tabulate_source,
)

FIRST = 0x7F14A325D200
WARPS = 32768
LABELS = ["Warp Stall Sampling (All Samples)", "Warp Stall Sampling (Not-issued Samples)", "# Samples",
          "Instructions Executed", "Avg. Threads Executed", "Address Space", "L2 Theoretical Sectors Local",
          "stall_lg", "stall_long_sb", "stall_long_sb (Not Issued)"]  # fmt: skip
# Of each instruction its text, its line, and samples, executed warps, address space, sectors of local memory, and
# samples waiting for the queue and for data.
CODE = [
    ("      MOV R1, c[0x0][0x28] ", 10, 40, WARPS, "-", 0, 36, 0),
    ("@!P0  STL.64 [R1+0x8], R4 ", 12, 60, WARPS, "Local", 262144, 50, 2),
    ("      LDG.E.64 R4, [R2.64] ", 11, 300, WARPS, "Global", 0, 0, 250),
    ("      LDL.64 R6, [R1+0x8] ", 12, 500, 3 * WARPS, "Local", 786432, 0, 480),
    ("@P1   LDL R7, [R1] ", 13, 0, 0, "Local", 0, 0, 0),
    ("      EXIT ", 13, 100, WARPS, "-", 0, 0, 0),
]  # fmt: skip
# ncu leaves quotes in a line of source as they are, and the carriage returns of files from elsewhere.
TEXT = {10: '__global__ void spill(float *x, const char *s = "a","b")\r', 11: "float y = x[i];", 12: "keep[j] += y;",
        13: "}"}  # fmt: skip


def quoted(fields: Sequence[object]) -> str:
    return ",".join(f'"{field}"' for field in fields)


def values(at: int, lacking: Sequence[str] = ()) -> list[object]:
    _, _, samples, executed, space, sectors, queue, data = CODE[at]
    every = [samples, samples - 1, samples, executed, 32, space, sectors, queue, data, data]
    return [value for label, value in zip(LABELS, every, strict=True) if label not in lacking]


def sass_page(lacking: Sequence[str] = ()) -> str:
    rows = [[hex(FIRST + 16 * at), text, *values(at, lacking)] for at, (text, *_) in enumerate(CODE)]
    heading = ["Address", "Source", *(label for label in LABELS if label not in lacking)]
    return "\n".join(['"Kernel Name","spill(float *, const char *)",', *map(quoted, [heading, *rows])]) + "\n\n"


def cuda_page(text: Mapping[int, str] = TEXT) -> str:
    rows: list[list[object]] = []
    for number in sorted(text):
        own = [at for at, row in enumerate(CODE) if row[1] == number]
        sums = [sum(part) if all(isinstance(one, int) for one in part) else "Local(2)"
                for part in zip(*map(values, own), strict=True)]  # fmt: skip
        rows.append([number, text[number], "-", "-", *sums])
        for place, at in enumerate(own):
            # It marks where instructions of other lines lie between those of a line.
            rows += [["", "", "...", "...", *["-"] * len(LABELS)]] if place else []
            rows.append(["", "", hex(FIRST + 16 * at), CODE[at][0], *values(at)])
    heads = ['"File Path","/src/spill.cu"', '"Function Name","spill(float *, const char *)"']
    return "\n".join([*heads, *map(quoted, [["Line No", "Source", "Address", "Source", *LABELS], *rows])]) + "\n"


def table() -> pd.DataFrame:
    return tabulate_source(read_instructions(sass_page(), "x"), read_lines(cuda_page(), "x"))


def test_lines_are_sums_over_their_instructions_as_ncu_has_them() -> None:
    lines = table().query("level == 'line'").set_index("line")
    for printed in read_lines(cuda_page(), "x"):
        own = lines.loc[printed.number]
        for label, name in (("# Samples", "samples"), ("Instructions Executed", "inst_executed"),
                            ("stall_long_sb", "stall_long_scoreboard"), ("stall_lg", "stall_lg_throttle"),
                            ("stall_long_sb (Not Issued)", "stall_long_scoreboard_not_issued"),
                            ("L2 Theoretical Sectors Local", "l2_sectors_local")):  # fmt: skip
            assert own[name] == int(printed.values[label])
    assert lines["share"].sum() == pytest.approx(1) and lines["share"].idxmax() == 12
    # Means do not add up, and ncu's sum of them means nothing.
    assert lines["avg_threads_executed"].isna().all()
    assert lines["local_loads"].to_dict() == {10: 0, 11: 0, 12: 3 * WARPS, 13: 0}
    assert lines["local_stores"].to_dict() == {10: 0, 11: 0, 12: WARPS, 13: 0}
    # Quotes and carriage returns of a line are no end.
    assert lines["source"].tolist() == [TEXT[number].strip() for number in sorted(TEXT)]
    assert split_row('"7","f(""a"",""b"")","-"', 3) == ["7", 'f("a","b")', "-"]
    rows = table().query("level == 'instruction'")
    assert rows["offset_bytes"].tolist() == list(range(0, 16 * len(CODE), 16))
    assert rows["opcode"].tolist() == ["MOV", "STL", "LDG", "LDL", "LDL", "EXIT"]
    assert rows["line"].tolist() == [row[1] for row in CODE]
    assert set(rows["file"]) == {"/src/spill.cu"} and rows["address_space"].tolist()[1] == "Local"


def test_pages_that_say_the_same_otherwise() -> None:
    # ncu 2025.3 printed the last launch of a report of 20 twice.
    assert read_instructions(sass_page() * 2, "x") == read_instructions(sass_page(), "x")
    assert read_lines(cuda_page() * 2, "x") == read_lines(cuda_page(), "x")
    # A column before the address.
    heading, *rows = sass_page().strip().split("\n")[1:]
    numbered = "\n".join([f'"#",{heading}', *(f'"{at}",{row}' for at, row in enumerate(rows))])
    assert read_instructions(numbered, "x") == read_instructions(sass_page(), "x")
    # A line whose file ncu does not find keeps its number.
    lines = read_lines(cuda_page(dict.fromkeys(TEXT, UNOPENED)), "x")
    found = tabulate_source(read_instructions(sass_page(), "x"), lines)
    assert found.query("level == 'line'")["line"].tolist() == sorted(TEXT) and set(found["source"]) == {""}


def test_without_a_table_of_lines_instructions_remain() -> None:
    unknown = read_lines("==WARNING== No lineinfo available to show CUDA-C source related to 'spill'\n", "x")
    rows = tabulate_source(read_instructions(sass_page(), "x"), unknown)
    assert len(rows) == len(CODE) and set(rows["level"]) == {"instruction"}
    assert rows["line"].isna().all() and rows["local_loads"].sum() == 3 * WARPS


def test_an_instruction_of_two_lines_counts_in_both_and_once_as_itself() -> None:
    twice = cuda_page() + cuda_page().replace("/src/spill.cu", "/src/inlined.h")
    rows = tabulate_source(read_instructions(sass_page(), "x"), read_lines(twice, "x"))
    assert rows.query("level == 'line'").groupby("file")["samples"].sum().to_dict() == {
        "/src/inlined.h": 1000, "/src/spill.cu": 1000}  # fmt: skip
    assert rows.query("level == 'instruction'")["samples"].sum() == 1000


def test_what_a_version_does_not_print_is_no_column(tmp_path: Path) -> None:
    lacking = ("# Samples", "Warp Stall Sampling (All Samples)", "Instructions Executed", "stall_lg")
    rows = tabulate_source(read_instructions(sass_page(lacking), "x"), [])
    assert not {"samples", "share", "inst_executed", "local_loads", "stall_lg_throttle"} & set(rows)
    told = rows.assign(place=1, id=0, function="spill", mangled="_Z5spillPf")
    scripts.write_csv(told, tmp_path / "x.csv")
    assert len(csv_tables.read(tmp_path / "x.csv", source_lines.TABLE)) == len(CODE)


def test_lines_that_cannot_be_read_leave_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"sass": sass_page(), "cuda,sass": cuda_page().replace('"60","59"', '"60"')}
    monkeypatch.setattr(source_lines, "print_page", lambda report, words, launch: pages[words[-1]])
    chosen = pd.DataFrame({"place": [1], "id": [0], "function": ["spill"], "mangled": ["spill"]})
    rows, (note,) = source_lines.tabulate_report("x.ncu-rep", chosen)
    assert len(rows) == len(CODE) and note.startswith("the lines of spill are left out: x.ncu-rep: the source page has")
    pages["sass"] = ""
    with pytest.raises(DataError, match=r"x\.ncu-rep holds no machine code of the most expensive kernels"):
        source_lines.tabulate_report("x.ncu-rep", chosen)
    pages["sass"] = sass_page(LABELS)
    with pytest.raises(DataError, match=r"x\.ncu-rep holds no counters of source lines: collect the section"):
        source_lines.tabulate_report("x.ncu-rep", chosen)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (sass_page().replace('"Address",', '"Where",'), "has a row of"),
        (sass_page().replace('"EXIT', '"EX","IT').replace('","0"', ""), "has a row of"),
        (sass_page().replace(hex(FIRST), "nowhere"), "an instruction at 'nowhere'"),
        (sass_page() + sass_page().replace('"300"', '"301"'), "is of several launches, where one was asked for"),
    ],
)
def test_a_damaged_page_is_named_in_one_line(page: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read_instructions(page, "train.source.ncu-rep")
    assert str(caught.value).startswith("train.source.ncu-rep: ") and "\n" not in str(caught.value)


def test_the_most_expensive_kernels_are_chosen_by_all_their_launches(tmp_path: Path) -> None:
    names = ["long", "often", "often", "rare", "long"]
    rows = pd.DataFrame({"id": range(5), "mangled": names, "function": names, "kernel": names})
    rows = rows.assign(**{GPU_TIME: [50.0, 9.0, 10.0, 40.0, 60.0]}, multiplicity=[1.0, 10.0, 10.0, 1.0, 1.0])
    found = choose_launches(rows, 2, "x")[["place", "id", "mangled"]].to_numpy().tolist()
    assert found == [[1, 2, "often"], [2, 4, "long"]]
    # Launches of further runs of ncu are in other reports.
    split = rows.assign(run=[1, 1, 2, 1, 2])
    assert choose_launches(split, 3, "x")["id"].tolist() == [1, 0, 3]
    with pytest.raises(DataError, match=f"x has no {GPU_TIME}"):
        choose_launches(rows.drop(columns=GPU_TIME), 2, "x")
    (tmp_path / "x.csv").write_text(f"id,range,step,{GPU_TIME}\n0,forward,0,5\n")
    with pytest.raises(DataError, match=r"x\.csv is of a section set that measures ranges"):
        read_expensive(str(tmp_path / "x.csv"), 3)


def test_a_sentence_says_where_a_kernel_waits_and_spills() -> None:
    rows = table().assign(place=1, function="spill")
    # As the report reads the table, in which lines have no offset and some instructions no line.
    rows = rows.astype({"line": "float64", "offset_bytes": "float64"})
    (said,) = describe_kernels(rows)
    assert said == (
        "spill: 56% of its warp samples are at spill.cu:12, where warps wait most for data from memory beyond L1 "
        "(long_scoreboard); warps access local memory 131,072 times, most often at spill.cu:12"
    )
    # Without lines the instruction is named, and without samples the spills alone.
    alone = rows.query("level == 'instruction'")
    assert "50% of its warp samples are at the instruction LDL (offset 0x30)" in describe_kernels(alone)[0]
    unsampled = describe_kernels(rows.drop(columns="samples"))[0]
    assert unsampled.startswith("spill: warps access local memory 131,072 times")
    dry = rows.assign(local_loads=0, local_stores=0, samples=0)
    assert describe_kernels(dry) == [] and describe_kernels(rows.assign(place=4)) == []
