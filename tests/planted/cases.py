"""What is planted in each case, and words for causes that are independent of the rules that look for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Half of a case, or the third group, which is looked at once.
DEVELOPMENT, HELD_OUT, SEALED = "development", "held_out", "sealed"
HALVES = (DEVELOPMENT, HELD_OUT)
GROUPS = (*HALVES, SEALED)
# Causes by name, and what each means. A case accepts those that are equally true of it.
CAUSES = {
    "synchronisation": "The host waits for the GPU inside the step.",
    "host-launches": "The host launches so many small kernels that the GPU waits for it.",
    "host-work": "Python code other than launches holds the host up in every step.",
    "cpu contention": "Another thread of the process keeps the launching thread from running.",
    "input": "The batch comes late: reading, decoding or collating.",
    "transfer": "Copies between host and GPU, from pageable memory or needlessly.",
    "allocator": "Memory is given back to the driver and allocated again in every step.",
    "precision": "Arithmetic could be done in a narrower type.",
    "double precision": "Arithmetic is done in fp64 by accident.",
    "unfused attention": "Attention is written out instead of computed by one kernel.",
    "unfused loss": "A loss over many classes is written out.",
    "unfused softmax": "A softmax is written out.",
    "unfused normalisation": "A norm is written out.",
    "unfused activation": "An activation is written out.",
    "memory-bound elementwise": "Elementwise work reads and writes intermediate results that need not exist.",
    "looped optimizer": "An optimizer or weight average goes over parameters one at a time.",
    "looped experts": "Experts are called one after the other.",
    "looped heads": "Attention heads are computed one after the other.",
    "looped steps": "Time steps or tiny batches are computed one after the other.",
    "redundant work": "Work is done whose result is not used, or that was done before.",
    "unused gradients": "Gradients are computed that nobody uses.",
    "repeated work": "What is computed was computed before, and is still the same.",
    "one-hot product": "A product with a matrix that is nearly all zero does what a lookup would.",
    "padding": "Most of the work is done on padding.",
    "casts": "The same tensors are converted to another type again and again.",
    "copies": "Tensors are copied as a whole where a part of them would be written.",
    "small grid": "A kernel has too few blocks for the GPU.",
    "layout": "Tensors are brought from one memory layout into another and back.",
    "recompilation": "Code or algorithms are chosen or compiled again, because shapes change.",
}
# Kinds of cases: each is in both halves.
KINDS = (
    "readings", "boolean masks", "host data", "experts", "loops", "attention", "loss", "layers", "one-hot",
    "optimizer", "emptied cache", "full precision", "double precision", "conversions", "padding", "slow input",
    "generation", "redundant work", "changing shapes", "cpu contention",
)  # fmt: skip
FAMILIES = (
    "convolutional", "transformer", "gpt", "recurrent", "generating", "mixture of experts", "graph network", "gan",
    "diffusion", "recommender",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A planted step. Its module is `tests.planted.HALF.NAME`, and `fault: false` there is its mended twin.

    planted: what is wrong, in one sentence. first_cause: names of the cause that are right, of CAUSES.
    graph_possible: whether a CUDA graph can capture the step as it stands; None where only a trial can tell.
    remedy: what the twin does instead. settings: settings of the case and its twin. mended: settings of the twin alone.
    setting: words of profzoo's settings, each of which removes the fault or most of it.
    """

    name: str
    half: str
    family: str
    kind: str
    planted: str
    first_cause: tuple[str, ...]
    graph_possible: bool | None
    remedy: str
    phase: str = "train"
    settings: Mapping[str, object] = field(default_factory=dict)
    mended: Mapping[str, object] = field(default_factory=dict)
    setting: str = ""

    @property
    def module(self) -> str:
        """The importable module of the step."""
        return f"tests.planted.{self.half}.{self.name}"

    @property
    def twin(self) -> str:
        """Name of the twin, which is a model of its own."""
        return f"{self.name}-mended"


def find_cases(half: str) -> tuple[Case, ...]:
    from tests.planted.development import records as development
    from tests.planted.held_out import records as held_out
    from tests.planted.sealed import records as sealed

    return {DEVELOPMENT: development.CASES, HELD_OUT: held_out.CASES, SEALED: sealed.CASES}[half]


def all_cases() -> tuple[Case, ...]:
    """The cases of all groups."""
    return tuple(case for half in GROUPS for case in find_cases(half))


def describe_causes(half: str) -> str:
    """A line for each case of a group: its name, the causes that are right, and settings that remove the fault."""
    return "".join(f"{case.name}: {', '.join(case.first_cause)} [{case.setting}]\n" for case in find_cases(half))
