"""Finds changes of type that autocast makes around operators, of what is no weight."""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls
from profzoo.fusion.values import Flow
from profzoo.op_costs.tensor_effects import COPY

CASTS = "autocast casts"
NARROW = ("c10::Half", "c10::BFloat16")
# How a change of type is called, by autocast within the operator that needs it.
CHANGE = "aten::to"
OF_CAST = "aten::_to_copy"


def find_autocast_casts(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield casts between fp32 and a narrow type within other operators, by module and call, and those of gradients."""
    found: dict[tuple[str, int], list[Call]] = {}
    for call in flow.calls:
        if call.place not in taken and call.direction != BACKWARD and _is_inserted(call):
            found.setdefault((call.module, call.instance), []).append(call)
    for calls in found.values():
        yield Chain(CASTS, tuple(calls), 0.0, 0.0)
        behind = tuple(call for call in backward_calls(flow, calls, taken) if call.operator == "copy_")
        if behind:
            yield Chain(CASTS, behind, 0.0, 0.0)


def _is_inserted(call: Call) -> bool:
    """Return whether an operator that is no change of type by itself has changed the type of its input."""
    if call.operator != "copy_" or call.kind != COPY or OF_CAST not in call.around:
        return False
    kinds = {one.kind for one in (*call.reads[:1], *call.writes[:1])}
    mixed = "float" in kinds and bool(kinds & set(NARROW))
    return mixed and call.around[0] not in (CHANGE, OF_CAST)
