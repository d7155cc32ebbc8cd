"""A server's loop in a thread of its own: requests come by a queue, and it would never end by itself."""

import queue
import threading

import torch
from torch import nn

torch.set_num_threads(1)
requests, answers = queue.Queue(), queue.Queue()
model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)).eval()


def serve():
    while True:
        request = requests.get()
        with torch.inference_mode():
            answers.put(model(request))


threading.Thread(target=serve).start()
while True:
    requests.put(torch.randn(3, 6))
    answers.get()
