"""A small GPT whose training process summarises its log in another thread, by Python alone."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor, nn

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.training import compute_loss
from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 128, "width": 384, "heads": 6, "layers": 8, "logged": 150000}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2, "logged": 100}


class Log:
    """Numbers that were logged, and their summary."""

    def __init__(self, count: int, fault: bool) -> None:
        self.numbers = [index % 97 / 97 for index in range(count)]
        self.array, self.fault, self.summary = np.array(self.numbers), fault, (0.0, 0.0)

    def summarise(self) -> None:
        """Mean and mean square."""
        if self.fault:
            total = square = 0.0
            for number in self.numbers:
                total += number
                square += number * number
            self.summary = (total / len(self.numbers), square / len(self.numbers))
        else:
            self.summary = (float(self.array.mean()), float((self.array * self.array).mean()))


def build(shape: SimpleNamespace) -> nn.Module:
    inner = blocks(shape.layers, shape.width, shape.heads, causal=True)
    network = Text(shape.vocabulary, shape.tokens, shape.width, inner)
    network.log = Log(shape.logged, shape.fault)
    return network


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    thread = threading.Thread(target=trainer.network.log.summarise, name="log")
    thread.start()
    found = compute_loss(trainer, *batch)
    trainer.update(found, trainer.optimizers[0])
    thread.join()
    return found
