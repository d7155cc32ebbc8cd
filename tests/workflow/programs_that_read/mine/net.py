"""A model that reads much: files that it lists, and files that it does not."""

import importlib
import json
from contextlib import suppress
from pathlib import Path

import helper_top
import numpy as np
import pkg2.sub
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset

from mine import layers

FILES = ("listed.txt",)
WORKLOADS = {"trimmed": {"train": {"batch": 2}}}
# The folder that the workflow runs in.
HERE = Path(__file__).parents[1]


class Samples(Dataset):
    """Samples that are read from files, by a worker process."""

    def __init__(self):
        self.names = sorted(path.name for path in (HERE / "samples").iterdir())

    def __len__(self):
        return 100

    def __getitem__(self, index):
        import of_workers

        value = float((HERE / "samples" / self.names[index % len(self.names)]).read_text())
        return torch.full((4,), value * of_workers.SCALE), index % 2


def build(shape):
    """Build the network, of a width that files give."""
    from mine.deep import late

    told = json.loads((HERE / "width.json").read_text())
    with suppress(FileNotFoundError):
        told |= json.loads((HERE / "override.json").read_text())
    width = told["width"] + helper_top.MORE + pkg2.sub.MORE + layers.MORE + late.MORE
    width += importlib.import_module(told["plugin"]).MORE + int((Path(__file__).parent / "listed.txt").read_text())
    network = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
    lists = HERE / "lists"
    values = np.load(lists / "values.npy")
    state = torch.load(lists / "state.pt")["w"] + load_file(lists / "state.safetensors")["w"]
    words = (lists / "words.txt").read_text() + (lists / "chosen").read_text()
    large = np.memmap(lists / "large.bin", dtype="uint8", mode="r")
    with torch.no_grad():
        network[2].bias += float(values.sum()) + state.sum() + len(words) + int(large[0])
    return network


def dataset(shape):
    """Return the samples."""
    return Samples()
