"""Two processes that average gradients, under torchrun: each on a GPU, both on one, or on the CPU."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
gpus, rank = torch.cuda.device_count(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
dist.init_process_group("nccl" if gpus >= int(os.environ["LOCAL_WORLD_SIZE"]) else "gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(5, 3, device=device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(os.environ.get("STEPS", "20"))):
    optimizer.zero_grad()
    model(torch.randn(4, 5, device=device)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
