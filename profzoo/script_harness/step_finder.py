"""Finds where the steps of a program end, from what its optimizers, modules, data loaders and ranges do."""

from collections.abc import Hashable
from dataclasses import dataclass, field

OPTIMIZER, MODULE, RANGE, DATALOADER, AUTO = "optimizer", "module", "range", "dataloader", "auto"
KINDS = (OPTIMIZER, MODULE, RANGE, DATALOADER)
# Optimizers that were made and have not stepped by then are taken for unused.
PATIENCE = 50


def split_rule(rule: str) -> tuple[str, str]:
    """Split the setting `step` into its kind and the name after the colon.

    >>> split_rule("module:encoder.layers"), split_rule("optimizer")
    (('module', 'encoder.layers'), ('optimizer', ''))
    """
    kind, _, name = rule.partition(":")
    return kind, name


@dataclass
class Cycle:
    """What takes turns in a loop, such as two optimizers, and which of them ends a step.

    counts: how often each was seen, in the order of first appearance.
    """

    rarest: bool
    counts: dict[Hashable, int] = field(default_factory=dict)

    def note(self, key: Hashable) -> bool:
        """Note that one was seen; returns whether it ends a step, as far as is known by now.

        Of optimizers the one that steps least often ends a step: a critic may step five times before its generator
        does. Of modules the one that is called most often does: a decoder is called for each token, its encoder once.
        Of several that are equal the last one of a round does.

        >>> cycle = Cycle(rarest=True)
        >>> [cycle.note(key) for key in "DDGDDG"]
        [True, True, True, False, False, True]
        """
        self.counts[key] = self.counts.get(key, 0) + 1
        return key == self.closing

    @property
    def closing(self) -> Hashable:
        """The one that ends a step; None before any was seen."""
        if not self.counts:
            return None
        wanted = min(self.counts.values()) if self.rarest else max(self.counts.values())
        return [key for key, count in self.counts.items() if count == wanted][-1]


class StepFinder:
    """Says after each event whether a step has ended.

    The rule is `optimizer`, `module:NAME`, `range:NAME`, `dataloader` or `auto`. With `auto` a step ends with an
    optimizer's step where an optimizer was made, else with a call of an outermost module.
    """

    def __init__(self, rule: str) -> None:
        self.kind, self.name = split_rule(rule)
        self.made = 0
        self._optimizers, self._modules = Cycle(rarest=True), Cycle(rarest=False)
        self._closing: Hashable = None
        # Optimizer steps and calls of outermost modules, for messages.
        self.optimizer_steps = self.calls = 0

    @property
    def settled(self) -> bool:
        """Whether all optimizers that were made have stepped, so that the one that ends a step is known."""
        if self.by_optimizer:
            return len(self._optimizers.counts) >= self.made or self.optimizer_steps >= PATIENCE
        return True

    @property
    def by_optimizer(self) -> bool:
        """Whether a step ends with an optimizer's step."""
        return self.kind == OPTIMIZER or (self.kind == AUTO and self.made > 0)

    def optimizer_made(self) -> None:
        """Note that the program has made an optimizer."""
        self.made += 1

    def optimizer_stepped(self, key: Hashable) -> bool:
        """Note that an optimizer has stepped, or that a gradient scaler has skipped its step."""
        self.optimizer_steps += 1
        self.made = max(self.made, 1)
        ended = self._optimizers.note(key)
        return self.by_optimizer and ended and self._keep(self._optimizers.closing)

    def module_called(self, key: Hashable, names: tuple[str, ...], outermost: bool) -> bool:
        """Note that a module's call has ended; names: its class and its path."""
        self.calls += outermost
        if self.kind == MODULE and self.name:
            return self.name in names
        if not outermost or self.kind not in (MODULE, AUTO):
            return False
        ended = self._modules.note(key)
        return ended and not self.by_optimizer and self._keep(self._modules.closing)

    def range_ended(self, name: str) -> bool:
        """Note that a range of the program's own has ended."""
        return self.kind == RANGE and name == self.name

    def batch_asked_for(self) -> bool:
        """Note that a data loader was asked for its next batch, which ends the step before."""
        return self.kind == DATALOADER

    def describe_rule(self) -> str:
        """Describe what ends a step, where it is neither an optimizer nor a network that was seen."""
        names = {MODULE: f"a call of {self.name}", RANGE: f"the range {self.name}", DATALOADER: "the next batch"}
        return names.get(self.kind, self.kind)

    def _keep(self, closing: Hashable) -> bool:
        self._closing = closing
        return True

    @property
    def closing(self) -> Hashable:
        """The optimizer or module that ended the last step."""
        return self._closing
