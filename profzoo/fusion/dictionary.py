"""What the columns of the tables of chains mean."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, GPU, NINE_OF_TEN, RATIO, Column

_NOW = "by torch.profiler; on a CPU host time"
_END = "end of the interval of `fused_ns`"
CHAINS: Mapping[str, Column] = {
    "chain": Column("Number of the row, to which the rows of `fusion-kernels.csv` refer.", COUNT),
    "pattern": Column("What the operators compute together; `elementwise chain` if that is not known.", tool="torch"),
    "module": Column(
        "Innermost module that all operators are in; `*` stands for several layers of a stack; an owner in "
        "parentheses, such as `(loss)`, where no module is.",
        tool="torch",
    ),
    "type": Column("Class of this module, or of the one around it that is not torch's own.", tool="torch"),
    "source": Column("File and lines of the `forward` of this class; empty where they are not known.", tool="torch"),
    "operators": Column("Operators in the order of their first calls, with the number of calls.", tool="torch"),
    "chains": Column("How many such chains a step has.", COUNT, "torch"),
    "launches": Column("Launches per step now.", COUNT, "torch"),
    "fused_launches": Column("Launches per step that remain.", COUNT),
    "bytes": Column("Bytes per step that the operators read and write, by their shapes and types.", "byte", "torch"),
    "fused_bytes": Column("Bytes per step that remain: what goes into the chains and comes out of them.", "byte"),
    "ns": Column(f"GPU time per step now, {_NOW}.", "ns", "torch", GPU),
    "fused_ns": Column("Expected GPU time per step of the fused kernels.", "ns", clock=GPU),
    "fused_ns_low": Column(f"Lower {_END}.", "ns", clock=GPU),
    "fused_ns_high": Column(f"Upper {_END}: bytes move no faster than now.", "ns", clock=GPU),
    "gain": Column(
        "Expected speedup of the step, by simulating the steps that nsys traced; empty without them.",
        RATIO,
        interval=NINE_OF_TEN,
    ),
}
KERNELS: Mapping[str, Column] = {
    "chain": Column("Row of `fusion.csv` that the launch is part of.", COUNT),
    "place": Column("Place of the launch in the step, counted from 0.", COUNT, "nsys"),
    "of_launches": Column("Launches of the step.", COUNT, "nsys"),
    "ns": Column("GPU time of the launch, as a mean over steps.", "ns", "nsys", GPU),
    "waits": Column("Is 1 if the host's waits between launches of the chain disappear with it, else 0.", COUNT),
    "together": Column("Is 1 if one call makes all launches of the chain that remain, else 0.", COUNT),
    "stays": Column("Is 1 if the launch remains as that of a fused kernel, else 0.", COUNT),
}
