"""Accelerate: a loop that accumulates the gradients of four batches, with a schedule and clipping."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
accelerator = Accelerator(gradient_accumulation_steps=4)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
data = TensorDataset(torch.randn(960, 20), torch.randint(0, 5, (960,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for _ in range(100):
    for inputs, target in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), target)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
