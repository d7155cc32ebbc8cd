"""A plain training loop: nine steps per epoch, three epochs; arguments change how it is written."""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--functional", action="store_true")
parser.add_argument("--scaler", action="store_true")
parser.add_argument("--compile", default="")
parser.add_argument("--device", default="cpu")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--crash-in", type=int, default=-1)
parser.add_argument("--overflow-in", type=int, default=-1)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--end", default="done")
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(72, 20), torch.randint(0, 5, (72,)))
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Sequential(nn.Linear(64, 5))).to(options.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
scaler = torch.amp.GradScaler(options.device, enabled=options.scaler)
if options.compile:
    model.compile(backend=options.compile)
step = 0
for _ in range(options.epochs):
    for inputs, target in DataLoader(data, batch_size=8, shuffle=True, num_workers=options.workers):
        inputs, target = inputs.to(options.device), target.to(options.device)
        outputs = model(inputs)
        loss = functional.cross_entropy(outputs, target) if options.functional else criterion(outputs, target)
        scaler.scale(loss / options.accumulate).backward()
        step += 1
        if step == options.overflow_in:
            model[0].weight.grad.fill_(float("inf"))
        if step == options.crash_in:
            raise ValueError("the fifth wheel came off")
        if step % options.accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
print(options.end)
