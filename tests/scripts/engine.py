"""A server as of vLLM: an engine process, spawned or forked, runs the model, and requests and answers go by queues.

The main process waits for the engine's answers, without a limit.
"""

import multiprocessing
import sys

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(64, 32), nn.Linear(32, 32), nn.Linear(32, 64)

    def forward(self, words, cache):
        cache = torch.cat([cache, self.embed(words)], 1)
        return self.head(self.hidden(cache).mean(1)), cache


def run_engine(requests, answers):
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Decoder().to(device).eval()
    with torch.inference_mode():
        while (prompts := requests.get()) is not None:
            words, cache = torch.tensor(prompts, device=device), torch.zeros(len(prompts), 0, 32, device=device)
            written = []
            for _ in range(8):
                scores, cache = model(words, cache)
                words = scores.argmax(-1, keepdim=True)
                written.append(words)
            answers.put(torch.cat(written, 1).tolist())


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1] if len(sys.argv) > 1 else "spawn")
    requests, answers = context.Queue(), context.Queue()
    engine = context.Process(target=run_engine, args=(requests, answers))
    engine.start()
    for number in range(200):
        requests.put([[number % 64, 1, 2]] * 5)
        answers.get()
    requests.put(None)
    engine.join()
