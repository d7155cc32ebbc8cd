"""Makes tables/fusion.csv: what could be fused in all cells, with the verdict and the advice on each chain."""

from collections.abc import Sequence

import pandas as pd

from profzoo.fusion import table as fusion
from profzoo.fusion.patterns import PATTERNS_OF_SHARE
from profzoo.io import column_types
from profzoo.io.columns import Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tables import cell_tables
from profzoo.tables.schemas import CELL
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.cell_facts import read_cell_facts
from profzoo.verdicts.rule_types import KnownSettings, Rules

ADVISED = ["verdict", "advice", "settings"]
COLUMNS = [*CELL, *fusion.COLUMNS, *ADVISED]
FUSION_TABLE = Table(
    columns=dict.fromkeys([*CELL, *ADVISED], column_types.TEXT) | dict(fusion.CHAINS.columns),
    key=[*CELL, *fusion.CHAINS.key],
    holds=fusion.CHAINS.holds,
    ranges=fusion.CHAINS.ranges,
    about={
        **fusion.CHAINS.about,
        "verdict": Column("Verdict that chains of this pattern get together if they hold the step back enough."),
        "advice": Column("What to do about chains of this pattern."),
        "settings": Column("Settings that follow the advice, as arguments of `python -m models.run`."),
    },
)


def add_advice(chains: pd.DataFrame, ran_with: KnownSettings, given: Rules) -> pd.DataFrame:
    """Return rows of a cell's fusion.csv with the verdict, the advice and the settings of the rule on their pattern."""
    rows: dict[str, tuple[str, str, str]] = {}
    for rule in given["rules"]:
        if rule["of"] == "chains":
            advice = verdict_rules.choose_advice(rule, {}, ran_with)
            own = (rule["verdict"], advice.next_step, advice.settings or "")
            rows |= dict.fromkeys(PATTERNS_OF_SHARE[rule["share"]], own)
    told = [rows.get(pattern, ("", "", "")) for pattern in chains["pattern"]]
    return chains.assign(**dict(zip(ADVISED, zip(*told, strict=True) if told else ([],) * 3, strict=True)))


def main(paths: Sequence[str], sidecars: Sequence[str], csv: str) -> None:
    """Read the cells' tables of chains, and the sidecars of the unprofiled runs for their settings; write the table."""
    ran_with, rules = read_cell_facts(sidecars).ran_with, verdict_rules.load_rules()
    frames = [
        add_advice(rows, ran_with.get((cell["model"], cell["phase"]), {}), rules).assign(**cell)
        for cell, rows in cell_tables.read(paths, fusion.CHAINS)
    ]
    write_csv(pd.concat(frames, ignore_index=True)[COLUMNS] if frames else pd.DataFrame(columns=COLUMNS), csv)
