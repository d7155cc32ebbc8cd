"""The colours of all figures and of the page: each colour means the same thing everywhere.

Time spent waiting for launches is red; time spent waiting for input or a synchronisation is violet. Kernel classes have
the colours of Okabe and Ito, or similar ones. Names with the same meaning in two groups have the same colour.
"""

PHASE_COLOURS = {"train": "#3b3f8f", "inference": "#8fa31f", "imported": "#767676"}
# One colour per kernel class; classes next to each other in a stack differ in lightness.
CLASS_COLOURS = {
    "convolution": "#0072b2",
    "gemm": "#56b4e9",
    "attention": "#00405f",
    "recurrent": "#cc79a7",
    "normalisation": "#e69f00",
    "elementwise": "#f0e442",
    "pooling": "#d55e00",
    "softmax": "#8c5a00",
    "reduction": "#7fc8a9",
    "embedding": "#5a4a78",
    "optimizer": "#009e73",
    "copy": "#bbbbbb",
    "random": "#777777",
    "communication": "#b0308f",
    "other": "#e8e8e8",
}
STEP_COLOURS = {
    "kernels": "#3d6480",
    "copy": CLASS_COLOURS["copy"],
    "transfer": "#7fa3b8",
    "communication": CLASS_COLOURS["communication"],
    "waiting": "#5c5c66",
    "idle: input": "#c9a0dc",
    "idle: turn": "#4a6fb5",
    "idle: synchronisation": "#7b3fa0",
    "idle: latency": "#f6b3b0",
    "idle: launch": "#e0605e",
    "idle: host": "#a3203a",
    "idle: unknown": "#ece6df",
}
# Colours of the parts of a step on the CPU, and of the directions of layers.
PART_COLOURS = {
    "data": "#dcc48e",
    "transfer": STEP_COLOURS["transfer"],
    "forward": "#a9cfe8",
    "prefill": "#7fb8a4",
    "decode": "#cfe3a3",
    "loss": "#e6c6d9",
    "backward": "#4a7fb0",
    "recompute": "#9a7fb5",
    "optimizer": CLASS_COLOURS["optimizer"],
    "graph": "#b98b5e",
    "other": CLASS_COLOURS["other"],
    "outside": "#b7c4ca",
}
# Colours of the parts of the time of a token, from what its bytes need to what nobody knows.
TOKEN_COLOURS = {
    "weights": "#1f5a4b",
    "cache": "#4f9c86",
    "activations": "#a5d3c3",
    "arithmetic": "#8f7a2e",
    "kernels below the roof": "#c7b56b",
    "extra traffic": "#b5532c",
    "small kernels": "#e59a6a",
    "between products": "#f3cfb3",
    "sampling": "#6b4a7d",
    "waits": "#7b3fa0",
    "gaps between launches": "#f2bcc0",
    "host": "#a3203a",
    "unexplained": "#ece6df",
}
BOUND_COLOURS = {"dram": "#b0672a", "l2": "#e3bc92", "simt": "#2f7f8f", "tensor": "#78bd45", "": "#dddddd"}
# Colours of tracks below the typical step, by the beginning of their names; NEUTRAL for others without labels.
TRACK_COLOURS = {
    "SMs active": STEP_COLOURS["kernels"],
    "tensor cores": BOUND_COLOURS["tensor"],
    "DRAM": BOUND_COLOURS["dram"],
    "PCIe": STEP_COLOURS["transfer"],
    "NVLink": STEP_COLOURS["transfer"],
}
# Colours of labels in tracks; other labels have those of CYCLE.
LABEL_COLOURS = {**CLASS_COLOURS, "running": "#4c72b0", "off the CPU": "#c9ced3", "unknown": CLASS_COLOURS["other"]}
NEUTRAL = "#8a949e"
# Colours of what limits occupancy, and of what warps wait for.
LIMITER_COLOURS = {
    "nothing": "#e3e6e8",
    "registers": "#b0672a",
    "shared memory": "#2f7f8f",
    "warps": "#c9a0dc",
    "blocks": "#7b3fa0",
    "barriers": "#444c5c",
    "several": "#6a8d3a",
    "unknown": "#ece6df",
}
STATE_COLOURS = {
    "issues": "#3d6480",
    "another warp issues": "#9db8c7",
    "memory": "#b0672a",
    "shared memory": LIMITER_COLOURS["shared memory"],
    "barrier": "#7b3fa0",
    "arithmetic pipe": "#78bd45",
    "fixed latency": "#d9d9d9",
    "instructions": "#e0605e",
    "other": "#eeeeee",
}
OTHER_STATES = "other"
# The group of each state that ncu names; those that are not named here are others.
STATE_GROUPS = {
    state: group
    for group, states in {
        "issues": ("selected",),
        "another warp issues": ("not_selected",),
        "memory": ("long_scoreboard", "lg_throttle", "tex_throttle", "membar", "drain"),
        "shared memory": ("short_scoreboard", "mio_throttle"),
        "barrier": ("barrier", "sleeping"),
        "arithmetic pipe": ("math_pipe_throttle", "gmma", "dispatch_stall"),
        "fixed latency": ("wait",),
        "instructions": ("no_instruction", "branch_resolving", "imc_miss"),
    }.items()
    for state in states
}
# Colours of percentiles of the time of a step.
PERCENTILE_COLOURS = {50.0: "#3d6480", 90.0: "#009e73", 95.0: "#d55e00", 99.0: "#a3203a"}
# The middle half of a cell's steps, and layers of types without a colour of their own.
HALF_OF_STEPS, OTHER_TYPES = "#d3d9de", "#b5b5b5"
# Colours of memory besides the parts of the step that allocated it.
MEMORY_COLOURS = {"earlier": "#cfcfd6", "reserved": "#8c1d4f"}
TOOL_COLOURS = ("#444c5c", "#b3576e", "#a08a2e", "#4fa3a0")
# Colours of a comparison: less time, more time, the same time, and undecided.
LESS, MORE, SAME, UNDECIDED = "#14746f", "#c8553d", "#6a8d3a", "#8a8a8a"
GROUPS = (PHASE_COLOURS, CLASS_COLOURS, STEP_COLOURS, PART_COLOURS, BOUND_COLOURS, MEMORY_COLOURS)
# Colours without a fixed meaning, used in this order: seaborn's palette `deep`.
CYCLE = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#8c8c8c", "#ccb974", "#64b5cd")
# Those of them that nobody takes for the grey of what has no colour.
TYPE_CYCLE = tuple(colour for colour in CYCLE if colour != "#8c8c8c")
