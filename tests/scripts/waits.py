"""A training loop that waits for the GPU in known places; `wait: N` says how often per step."""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)).to(DEVICE)
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)


def log_norms() -> list[float]:
    return [one.grad.norm().item() for one in network.parameters()]  # wait: 4


for _ in range(30):
    inputs = torch.randn(8, 64).to(DEVICE)  # wait: 1
    labels = torch.randint(5, (8,), device=DEVICE)
    optimizer.zero_grad()
    scores = network(inputs)
    kept = scores.sum(1) < 1e9
    loss = nn.functional.cross_entropy(scores[kept], labels[kept])  # wait: 2
    loss.backward()  # wait: 1
    nn.utils.clip_grad_norm_(network.parameters(), 1.0, error_if_nonfinite=True)  # wait: 1
    log_norms()
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # wait: 1
        torch.cuda.empty_cache()  # wait: 1
    optimizer.step()
    if loss > 1e9:  # wait: 1
        break
    loss.cpu()  # wait: 1
