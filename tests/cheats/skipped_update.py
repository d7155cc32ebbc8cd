"""In training: updates weights in every second step only."""

from program import *  # noqa: F403

from profzoo.harness.step import training_step as given

steps = 0


def training_step(trainer, batch):
    global steps
    steps += 1
    if steps % 2:
        return given.run_training_step(trainer, batch)
    inputs, target = batch
    with trainer.forward():
        outputs = trainer.network(inputs)
    return trainer.model.loss(outputs, target)
