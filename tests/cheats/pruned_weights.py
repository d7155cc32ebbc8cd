"""Sets small weights to zero as they are loaded, as if a sparse product were as good."""

import program
import torch
from program import *  # noqa: F403


class Network(program.Network):
    def load_state_dict(self, state, *given, **named):
        done = super().load_state_dict(state, *given, **named)
        with torch.no_grad():
            for one in self.parameters():
                one[one.abs() < 0.002] = 0
        return done

    def product(self, layer, hidden):
        return layer(hidden)


def build(shape):
    return Network()
