"""Rounds weights to 12 bits as they are loaded, and computes with them in fp32."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def load_state_dict(self, state, *given, **named):
        def rounded(one):
            scale = one.abs().max() / 2**11
            return (one / scale).round() * scale

        return super().load_state_dict({name: rounded(one) for name, one in state.items()}, *given, **named)

    def product(self, layer, hidden):
        return layer(hidden)


def build(shape):
    return Network()
