"""Compare the energy per data sample of two sides, in joules, where NVML was sampled for both."""

from collections.abc import Mapping, Sequence

import numpy as np

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.statistics import speedup
from profzoo.tools.sample import activity, tables

# Methods to measure energy, the preferred one first.
ENERGY_METHODS = ("item_energy_counter_j", "item_energy_power_j")
Energies = Mapping[str, Sequence[float]]
COLUMNS = ("baseline_item_j", "candidate_item_j", "energy_ratio", "energy_low", "energy_high")


def energy_per_sample(csv: str, sidecar: str) -> Energies:
    """Return joules per data sample of each process, by method; only methods that all processes have."""
    table, facts = reading.read(csv, activity.TABLE), read_facts(sidecar, activity.FACTS)
    each = [] if facts["gaps"] else tables.summarise_processes(table, facts)
    return {way: [one[way] for one in each] for way in ENERGY_METHODS if each and all(way in one for one in each)}


def compare_energies(baseline: Energies, candidate: Energies) -> dict[str, float]:
    """Return COLUMNS of the comparison table, as medians over processes; NaN if the sides share no method.

    The interval is over processes, which ran separately; it needs at least two processes per side.
    """
    found = dict.fromkeys(COLUMNS, float("nan"))
    way = next((way for way in ENERGY_METHODS if way in baseline and way in candidate), None)
    if way is None:
        return found
    one, other = baseline[way], candidate[way]
    found |= {"baseline_item_j": float(np.median(one)), "candidate_item_j": float(np.median(other))}
    found["energy_ratio"] = found["candidate_item_j"] / found["baseline_item_j"]
    if min(len(one), len(other)) > 1:
        ratio = speedup.estimate_ratio(one, other, None)
        found |= {"energy_ratio": ratio.ratio, "energy_low": ratio.low, "energy_high": ratio.high}
    return found
