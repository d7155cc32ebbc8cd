"""Derives the quantities of tables from ncu's metrics, and splits ratios into sums, from which means follow."""

from collections.abc import Mapping

import pandas as pd

from profzoo.errors import DataError
from profzoo.tools.ncu.quantities import (
    ADDITIVE,
    EIGHT_BITS,
    GPU_TIME,
    LATER,
    NUMBERS,
    OF_LAUNCH,
    QUANTITIES,
    SECTOR,
    has_metric,
    metrics_to_ask,
)
from profzoo.tools.ncu.quantity import Kind, Quantity

# Importers find all declarations of quantities here.
__all__ = [
    "ADDITIVE", "EIGHT_BITS", "GPU_TIME", "LATER", "NUMBERS", "OF_LAUNCH", "QUANTITIES", "SECTOR", "derive_quantities",
    "has_metric", "metrics_to_ask", "split_into_sums",
]  # fmt: skip


def derive_quantities(table: pd.DataFrame, known: Mapping[str, Quantity] = QUANTITIES) -> pd.DataFrame:
    """Return the quantities in a table of ncu's metrics, one column each; empty in rows that lack a metric.

    known: the quantities to derive, by name; those of the kernel tables if nothing else is given.

    Raises:
        DataError: a metric has a value that is no number.
    """
    columns = {}
    for name, quantity in known.items():
        chosen = next((one.factors for one in quantity.sums if set(one.factors) <= set(table.columns)), None)
        if chosen is not None:
            numbers = {metric: _numbers(table[metric]) for metric in chosen}
            columns[name] = sum(
                (numbers[metric] * factor for metric, factor in chosen.items()), pd.Series(0.0, table.index)
            )
    return pd.DataFrame(columns, index=table.index)


def split_into_sums(
    table: pd.DataFrame, values: pd.DataFrame, times: pd.Series, known: Mapping[str, Quantity] = QUANTITIES
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return value times weight, and weight, of each non-additive quantity; the mean is the ratio of their sums.

    Both are 0 in rows without a value.

    Args:
        table: rows with ncu's metrics.
        values: result of derive_quantities for these rows.
        times: time of each row in ns.
        known: declarations of the quantities, as for derive_quantities.
    """
    others = {name: _weight(table, known[name], times) for name in values if known[name].kind is not Kind.SUM}
    weights = pd.DataFrame(others, index=table.index).astype("float64").where(values[list(others)].notna()).fillna(0.0)
    return (values[list(others)].fillna(0.0) * weights).astype("float64"), weights


def _weight(table: pd.DataFrame, quantity: Quantity, times: pd.Series) -> pd.Series:
    if quantity.kind is Kind.OF_LAUNCH:
        return pd.Series(1.0, table.index)
    for product in quantity.per:
        if set(product) <= {*table.columns, GPU_TIME}:
            parts = [times if name == GPU_TIME else _numbers(table[name]) for name in product]
            return pd.concat(parts, axis=1).astype("float64").prod(axis=1, skipna=False)
    return times


def _numbers(column: pd.Series) -> pd.Series:
    parsed = pd.to_numeric(column, errors="coerce")
    lost = column[parsed.isna() & column.notna()]
    if len(lost):
        raise DataError(f"{column.name} holds {lost.iloc[0]!r}, which is no number: export the report again")
    return parsed
