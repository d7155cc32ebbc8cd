"""Says which settings a cell cannot run with, and why: above all, what prevents a CUDA graph of its step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from profzoo.cell import settings
from profzoo.tools.nsys.steps.steps import INPUT
from profzoo.verdicts import ONLY_ITSELF
from profzoo.verdicts.rules.rule_types import KnownSettings
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.graph_obstacles import (
    STEERED,
    WAITS,
    GraphObstacle,
    count_per_step,
    describe_waits,
    find_trace_obstacles,
)
from profzoo.what_if.loading import WORKERS, Loading, count_workers
from profzoo.what_if.program import Program

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine

GRAPH_WORDS, A_GRAPH = "graph=true", "a CUDA graph (graph: true)"
# Setting of a script: the command that starts it.
COMMAND = "command"
# What a line runs to give memory back to the driver, for which the host waits, though it prevents no graph.
EMPTIES, FREES = "empty_cache()", "frees"
# Pauses of the host that neither launches nor the GPU cause: their kind, and shares of rules about them.
HELD, HOST_PAUSES = "held", ("lock_waits_removed", "host_work_removed", "loading_removed")
# Most lines that a sentence names.
NAMED = 3
# Shares of rules that are about pauses of the host, by the kind of their lines.
CLEARING = {"idle_synchronisation": WAITS, "allocations_removed": FREES, **dict.fromkeys(HOST_PAUSES, HELD)}
POSSIBLE = "a CUDA graph of the step (graph: true) becomes possible"
# Share of the rule about input.
IDLE_INPUT = "idle_input"
AND_THEN, AND_THEN_ALIKE = f"; then {POSSIBLE}", f"; then, once no value steers the launches, {POSSIBLE}"


@dataclass(frozen=True)
class Feasibility:
    """What prevents some settings of a cell.

    Attributes:
        obstacles: what prevents a CUDA graph of its step. lines: lines of the program at which the step waits, without
            those of its input, the most waits first; None if none was looked for.
        is_script: whether the program is a script, whose steps profzoo does not capture.
        loading: how its batches are loaded; None where that takes too little time for workers.
        refused: the reason why settings cannot be applied, as a sentence without its full stop, by setting words.
    """

    obstacles: Sequence[GraphObstacle] = ()
    lines: "Sequence[BlockingLine] | None" = None
    refused: Mapping[str, str] = field(default_factory=dict)
    is_script: bool = False
    loading: Loading | None = None

    def refusal(self, words: str | None) -> str | None:
        """Return why settings cannot be applied, given as setting words; None if nothing is known against them.

        >>> Feasibility(refused={"graph=true": "it waits"}).refusal("precision=bf16 graph=true")
        'it waits'
        >>> Feasibility(refused={"workers=2": "it failed"}).refusal("workers=4 pin_memory=true")
        'it failed'
        """
        given = split_words(words or "")
        return next((why for refused, why in self.refused.items() if split_words(refused) <= given), None)


def split_words(words: str) -> set[str]:
    """Return setting words; workers of any number are one word, because each runs the same code."""
    return {WORKERS if word.startswith(f"{WORKERS}=") and count_workers(word) else word for word in words.split()}


# What advice says of graphs besides its settings, and what it says where none is possible.
GRAPH_TEXTS = {
    "use CUDA graphs, which shorten the gaps between kernels; ": "",
    "(a larger batch, CUDA graphs)": "(a larger batch)",
}

# Nothing is known against any setting.
EVERYTHING = Feasibility()
FAILED_EARLIER = "it failed in a trial: {}"


def refuse_failed(feasible: Feasibility, failed: Mapping[str, str]) -> Feasibility:
    """Return what a cell cannot run with if settings failed in trials; failed: the reasons, by setting words."""
    known = {words: FAILED_EARLIER.format(why) for words, why in failed.items()}
    return replace(feasible, refused={**known, **feasible.refused}) if known else feasible


def judge_feasibility(
    ran_with: KnownSettings, program: Program | None = None, lines: "Sequence[BlockingLine] | None" = None
) -> Feasibility:
    """Judge which settings a cell cannot run with.

    Neither settings nor lines are known of a report that was made elsewhere. Its waits may be those of the tool that
    made it, so nothing is called impossible.

    Args:
        ran_with: its settings. program: its traced steps, None without a trace.
        lines: the lines at which its step waits for the GPU, of the baseline's sidecar; None if it has none.
    """
    if lines is None and not {"graph", COMMAND} & set(ran_with):
        return EVERYTHING
    mine = None if lines is None else step_lines(lines)
    obstacles = find_graph_obstacles(program, mine)
    refused = _refused(ran_with, obstacles, mine or ())
    return Feasibility(obstacles, mine, refused, COMMAND in ran_with)


def step_lines(lines: "Sequence[BlockingLine]") -> "list[BlockingLine]":
    """Return the lines that wait in the step itself, and not for its input."""
    return [one for one in lines if one["range"] not in INPUT]


def find_graph_obstacles(program: Program | None, lines: "Sequence[BlockingLine] | None") -> list[GraphObstacle]:
    """Return what prevents a CUDA graph of a cell's step, by its trace and by its lines that wait.

    program: traced steps, None without a trace. lines: those of `step_lines`, None if none was looked for.
    """
    found = find_trace_obstacles(program) if program else []
    mine = lines_of_kind(lines or (), WAITS)
    if mine and not any(one.kind == WAITS for one in found):
        found.insert(0, describe_waits(sum(one["calls"] for one in mine), 1))
    return found


def lines_of_kind(lines: "Sequence[BlockingLine]", kind: str) -> "list[BlockingLine]":
    """Return the lines that wait (WAITS) or give memory back (FREES); none for launches that differ."""
    frees = {WAITS: False, FREES: True}.get(kind)
    return [one for one in lines if one["operation"].endswith(EMPTIES) is frees]


def describe_lines(lines: "Sequence[BlockingLine]") -> str:
    """Describe lines that wait: operation, place and waits per step of the first, and how many there are besides.

    >>> one = {"file": "train.py", "line": 84, "function": "log", "text": "", "operation": ".item()", "range": ""}
    >>> describe_lines([one | {"calls": 62}])
    '.item() at train.py:84, 62 times per step'
    """
    shown = [
        f"{one['operation'] or 'a wait'} at {one['file']}:{one['line']}, {count_per_step(one['calls'])}"
        for one in lines
    ]
    more = len(shown) - NAMED
    rest = f"{more} more line{'s' if more > 1 else ''}"
    return "; ".join([*shown[:NAMED], *([rest] if more > 0 else [])])


def _refused(
    ran_with: KnownSettings, obstacles: Sequence[GraphObstacle], lines: "Sequence[BlockingLine]"
) -> dict[str, str]:
    """Return the reasons against settings by setting word."""
    if COMMAND in ran_with and "graph" not in settings.APPLICABLE:
        besides = "".join(f"; besides, {_explain(one, lines)}" for one in obstacles)
        return {GRAPH_WORDS: f"{ONLY_ITSELF}{besides}"}
    if not obstacles or ran_with.get("graph"):
        return {}
    return {GRAPH_WORDS: "; ".join(_explain(one, lines) for one in obstacles)}


def _explain(obstacle: GraphObstacle, lines: "Sequence[BlockingLine]") -> str:
    """Explain an obstacle by the lines of the program where they are known."""
    mine = lines_of_kind(lines, obstacle.kind)
    return f"{obstacle.evidence} ({describe_lines(mine)})" if mine else obstacle.evidence


def add_wait_texts(row: Verdict, feasible: Feasibility) -> Verdict:
    """Return a verdict that says which lines wait, why settings are refused, or how many workers input needs."""
    if row.refused:
        what = A_GRAPH if row.refused == GRAPH_WORDS else row.refused
        until = ";" if feasible.is_script else ": mend that first; until then"
        return replace(
            row, next_step=f"{what} is not possible, as {feasible.refusal(row.refused)}{until} {row.next_step}"
        )
    if row.about == IDLE_INPUT and (own := feasible.loading) and (own.workers or count_workers(row.settings or "")):
        return replace(row, next_step=f"{own.describe()}: {row.next_step}")
    kind = CLEARING.get(row.about)
    if kind is None:
        return row
    lines = lines_of_kind(feasible.lines or (), kind)
    named = f"{describe_lines(lines)}: " if lines else ""
    return replace(row, next_step=f"{named}{row.next_step}{_say_what_then(kind, feasible)}")


def _say_what_then(kind: str, feasible: Feasibility) -> str:
    """Say that a CUDA graph becomes possible once obstacles of a kind are mended; empty where it does not."""
    kinds = {one.kind for one in feasible.obstacles}
    if feasible.is_script or kind not in kinds or kinds - {kind, STEERED}:
        return ""
    return AND_THEN_ALIKE if STEERED in kinds else AND_THEN


def drop_graph_texts(text: str, feasible: Feasibility) -> str:
    """Return the text of advice without its hints to use CUDA graphs, where none is possible."""
    if feasible.refusal(GRAPH_WORDS):
        for hint, instead in GRAPH_TEXTS.items():
            text = text.replace(hint, instead)
    return text
