"""What the columns of the tables of a comparison mean."""

from collections.abc import Mapping

from profzoo.compare import numeric_dictionary
from profzoo.io.columns import COUNT, CPU, FRACTION, GPU, NINE_OF_TEN, NINETEEN_OF_TWENTY, RATIO, Column

_SIDES: Mapping[str, Column] = {
    "model": Column("Model, without its variant."),
    "baseline": Column("Name of the reference side."),
    "candidate": Column("Name of the side that is compared with it."),
}
_PER = "per step, or per sample where the sides have batches of different sizes"
SIDE = Column("Name of the side, a variant or a folder of results; the reference side comes first.")
COMPARED: Mapping[str, Column] = {
    **_SIDES,
    "baseline_ns": Column(f"Median time of the reference side: {_PER} (see `per`).", "ns", "time", GPU),
    "candidate_ns": Column("The same of the candidate.", "ns", "time", GPU),
    "ratio": Column(
        "Time of the candidate over that of the reference side: below 1 the candidate is faster.",
        RATIO,
        "time",
        GPU,
        NINETEEN_OF_TWENTY,
    ),
    "verdict": Column(
        "`faster`, `slower`, `equivalent` (within `margin`) or `undecided`; `different` if it is faster and computes "
        "something else."
    ),
    **numeric_dictionary.ABOUT,
    "p_different": Column("p-value of a ratio as far from 1, if there is no difference.", FRACTION),
    "p_equivalent": Column(
        "p-value of a ratio as near to 1, if the difference is as large as `margin` (two one-sided tests).", FRACTION
    ),
    "processes": Column("Processes per side; of unlike numbers the smaller one.", COUNT),
    "missing_rounds": Column(
        "Estimate of further rounds of processes that a decision takes, where rounds go on until they decide; 0 if "
        "decided, empty if unknown or more than 126.",
        COUNT,
    ),
    "missing_ns": Column("Estimate of the time that these rounds take.", "ns", "time", CPU),
    "steps": Column("Settled steps of both sides together.", COUNT, "time"),
    "alternating": Column("Whether processes of the sides ran in alternation."),
    "per": Column("What times are of: a `step`, or a `sample` of the data."),
    "baseline_items": Column("Samples of the data in a step of the reference side.", COUNT),
    "candidate_items": Column("The same of the candidate.", COUNT),
    "differs": Column("Versions, settings and SM clocks in which the sides differ."),
    "margin": Column("Relative difference that counts as none.", FRACTION),
    "baseline_item_j": Column("Energy per sample of the data of the reference side.", "J", "sample"),
    "candidate_item_j": Column("The same of the candidate.", "J", "sample"),
    "energy_ratio": Column("Energy of the candidate over that of the reference side.", RATIO, "sample"),
    "energy_low": Column("Lower end of the 95 % interval of `energy_ratio`.", RATIO, "sample"),
    "energy_high": Column("Upper end of the 95 % interval of `energy_ratio`.", RATIO, "sample"),
}
PARTS: Mapping[str, Column] = {
    **_SIDES,
    "level": Column("`part` (of the step), `range`, `class` (of kernels), `layer` or `kernel`."),
    "range": Column("Part of the step, or direction of the layer."),
    "name": Column("Name of the part, range, class, layer or kernel."),
    "baseline_ns": Column(f"Time on the reference side: {_PER}.", "ns", clock=GPU),
    "candidate_ns": Column("The same of the candidate.", "ns", clock=GPU),
    "delta_ns": Column("`candidate_ns` less `baseline_ns`.", "ns", clock=GPU),
    "delta_share": Column("`delta_ns` over the step of the reference side.", RATIO, clock=GPU),
    "baseline_launches": Column("Launches on the reference side, per step or sample.", COUNT),
    "candidate_launches": Column("The same of the candidate.", COUNT),
    "change": Column(
        "What else differs: one side alone has it, or the launch configuration or module type is another."
    ),
}
_VALUE = "See `unit`; sums are per step, or per sample where the sides have batches of different sizes."
COUNTERS: Mapping[str, Column] = {
    **_SIDES,
    "level": Column(
        "`cell` (all kernels), `class` (of kernels), `layer`, `kernel`, or `layer kernel` (one kernel in one layer)."
    ),
    "range": Column("Part of the step, or direction of the layer."),
    "name": Column("Name of the class, layer or kernel; empty for the cell."),
    "kernel": Column("Function of the kernel at level `layer kernel`; else empty."),
    "quantity": Column("What is compared, such as `dram_bytes`, `l2_hit_pct` or `occupancy_pct`."),
    "unit": Column("Unit of the values: `byte`, `flop` or `%`."),
    "baseline_value": Column(f"Value on the reference side. {_VALUE}", "see unit", "ncu", interval=NINE_OF_TEN),
    "candidate_value": Column(f"The same of the candidate. {_VALUE}", "see unit", "ncu", interval=NINE_OF_TEN),
    "delta": Column("`candidate_value` less `baseline_value`; of rates in percentage points.", "see unit", "ncu"),
    "delta_share": Column("`delta` over the whole cell's sum on the reference side; empty for rates.", RATIO, "ncu"),
    "baseline_launches": Column("Launches on the reference side, per step or sample.", COUNT, "ncu"),
    "candidate_launches": Column("The same of the candidate.", COUNT, "ncu"),
    "p_different": Column("p-value of a difference as large as this, if there is none (Welch's t).", FRACTION),
    "outcome": Column(
        "`changed` (beyond the margin, and more than chance explains), `same` (within the margin) or `undecided`."
    ),
    "change": Column(
        "`appeared` or `vanished` if one side alone has the layer or kernel; or why there is no decision."
    ),
}
