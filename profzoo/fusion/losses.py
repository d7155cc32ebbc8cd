"""Finds losses over classes that are written out: logarithms of a softmax, from which each row's target is picked.

torch.nn.functional.cross_entropy computes them with a log-softmax and a loss of the picked values, which keep one
matrix as large as the scores. Its backward pass fills a gradient with zeros and reads it with the kept matrix.
"""

from collections.abc import Iterator, Sequence

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls, connected_parts, fusible_runs
from profzoo.fusion.values import Flow
from profzoo.op_costs.tensor_effects import COPY, FILL, GATHER, OPAQUE, SCATTER, Tensor, kind_of

LOSS = "cross-entropy"
# With fewer classes, a softmax is more likely to weigh something than to be a loss.
CLASSES = 64
PARTS = ("_log_softmax", "_softmax", "logsumexp", "exp", "log")
PICKING = ("one_hot", "scatter", "scatter_", "eq")
# By cross_entropy: log-softmax, loss and mean; zeros, gradient of the picked values, and of the log-softmax.
FORWARD_LAUNCHES, BACKWARD_LAUNCHES = 2.0, 3.0
FORWARD_MATRICES, BACKWARD_MATRICES = 1, 4
# With smoothed targets, the log-softmax is summed; backward, the gradients of both parts are added up.
SMOOTHED_FORWARD, SMOOTHED_BACKWARD = 1, 2


def find_losses(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield written-out losses over classes, forward and backward."""
    for run in fusible_runs(flow, taken, _joins):
        for places in connected_parts(flow, run):
            calls = [flow.calls[place] for place in places]
            scores = _scores(calls)
            if scores is None:
                continue
            # A change of type before the loss stays.
            first = next(
                (call for call in calls if call.kind == COPY and call.writes[0].elements == scores.elements), None
            )
            read = scores.bytes if first is None else first.effects.bytes + first.writes[0].bytes
            smoothed = any(_smooths(call, scores.elements) for call in calls)
            matrices = FORWARD_MATRICES + SMOOTHED_FORWARD * smoothed
            yield Chain(LOSS, tuple(calls), read + matrices * scores.bytes, FORWARD_LAUNCHES + smoothed)
            behind = backward_calls(flow, calls, taken)
            if behind:
                matrices = BACKWARD_MATRICES + SMOOTHED_BACKWARD * smoothed
                moved = matrices * scores.bytes + (first.effects.bytes if first else 0)
                yield Chain(LOSS, behind, moved, BACKWARD_LAUNCHES + smoothed + bool(first))


def _joins(call: Call) -> bool:
    small = call.kind == OPAQUE and kind_of(f"aten::{call.operator}") is None
    return call.direction != BACKWARD and (call.fusible or call.kind == SCATTER or small)


def _scores(calls: Sequence[Call]) -> Tensor | None:
    """Return the scores that a loss turns into one number per row or one in all; None if these calls are no loss."""
    if any(call.operator.startswith("nll_loss") or "aten::cross_entropy_loss" in call.around for call in calls):
        return None
    main = next((call for call in calls if call.operator in PARTS and call.reads), None)
    if main is None or len(main.reads[0].shape) < 2 or main.reads[0].shape[-1] < CLASSES:
        return None
    scores, names = main.reads[0], {call.operator for call in calls}
    sums = main.operator in ("_log_softmax", "_softmax", "logsumexp") or {"exp", "sum", "log"} <= names
    rows = scores.elements // scores.shape[-1]
    picks = any(_picks(call, scores.elements) for call in calls)
    ends = [call.writes[0].elements for call in calls if call.writes][-1:]
    return scores if sums and picks and ends and ends[0] <= rows else None


def _picks(call: Call, size: int) -> bool:
    if call.kind == GATHER:
        return call.reads[0].elements == size
    return call.operator in PICKING and bool(call.writes) and call.writes[0].elements == size


def _smooths(call: Call, size: int) -> bool:
    """Return whether a call gives every class a share of the target."""
    filled = call.kind == FILL and call.operator == "fill_" and call.writes[0].elements == size
    return filled and call.values[1:2] not in ((), ("0",), ("0.",))
