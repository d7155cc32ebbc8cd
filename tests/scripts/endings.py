"""A training loop that ends in its third step in the way that its argument names, or before its first step."""

import ctypes
import os
import signal
import sys
import time

import torch
from torch import nn


class Broken(torch.autograd.Function):
    """What cannot be differentiated."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("no gradient\nof this")


way = sys.argv[1]
model = nn.Linear(4, 4)
if way == "before":
    print("cannot begin", file=sys.stderr)
    os._exit(3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 50):
    loss = nn.functional.mse_loss(model(torch.ones(2, 4)), torch.ones(2, 4))
    if step == 3:
        print("the third step", flush=True)
        if way == "backward":
            loss = Broken.apply(loss)
        elif way == "called":
            model(torch.ones(2, 5))
        elif way == "library":
            print("no runtime for processes", file=sys.stderr)
            ctypes.CDLL(None).exit(14)
        elif way == "message":
            sys.exit("out of patience")
        elif way == "abort":
            os.abort()
        elif way == "crash":
            ctypes.string_at(0)
        elif way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif way == "hangs":
            time.sleep(60)
    loss.backward()
    optimizer.step()
