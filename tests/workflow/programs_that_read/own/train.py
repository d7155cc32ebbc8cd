"""A script that reads much, and that writes files that it reads in the next run."""

import configparser
import os
import sys
import time
from pathlib import Path

import sizes
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import pkg2.sub  # noqa: E402


class Numbers(Dataset):
    """Numbers in files, which a worker process reads."""

    def __init__(self):
        self.files = sorted(HERE / "data" / name for name in os.listdir(HERE / "data"))  # noqa: PTH208

    def __len__(self):
        return 200

    def __getitem__(self, index):
        return torch.full((4,), float(self.files[index % len(self.files)].read_text()))


torch.set_num_threads(1)
asked = configparser.ConfigParser()
asked.read(sys.argv[1])
words = (HERE / "given" / "words.txt").read_text()
os.chdir(HERE / "inner")
rate = float(Path("rate.txt").read_text())
width = int(asked["network"]["width"]) + sizes.MORE + pkg2.sub.MORE + len(words)
width += int((HERE / "prepared.txt").read_text())
network = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1))
# What a run leaves for the next one: a checkpoint, a log of its own name, and a cache.
checkpoint, cache = HERE / "left" / "state.pt", HERE / "left" / "cache.txt"
checkpoint.parent.mkdir(exist_ok=True)
if checkpoint.exists():
    network[1].load_state_dict(torch.load(checkpoint))
if cache.exists():
    cache.read_text()
else:
    cache.write_text("made once\n")
sorted(checkpoint.parent.iterdir())
(HERE / "left" / f"run-{time.time_ns()}.log").write_text("begun\n")
optimizer = torch.optim.SGD(network.parameters(), lr=rate)
for batch in DataLoader(Numbers(), batch_size=2, num_workers=1):
    optimizer.zero_grad()
    network(batch).square().mean().backward()
    optimizer.step()
    torch.save(network[1].state_dict(), checkpoint)
