"""Loops whose steps have twelve samples each, in the form that the argument names; a sequence has seven elements."""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader

LENGTH, BATCH, WIDTH = 7, 12, 8
form = sys.argv[1]
if len(sys.argv) > 2:
    torch.set_default_device(sys.argv[2])
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1


class Language(nn.Module):
    """Words of shape (LENGTH, BATCH), as in torch's own example of a language model."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(9, WIDTH), inner, nn.Linear(WIDTH, 9)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        if form == "packed":
            lengths = torch.full((words.shape[1],), LENGTH)
            return self.head(self.inner(pack_padded_sequence(self.embedding(words), lengths))[0].data)
        inner = self.embedding(words)
        if form == "inside":
            # What comes first outside is the batch.
            return self.head(self.inner(inner.transpose(0, 1)).transpose(0, 1))
        found = self.inner(inner)
        return self.head(found[0] if isinstance(found, tuple) else found)


torch.manual_seed(0)
torch.set_num_threads(1)
layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=form == "batch first")
recurrent = form in ("recurrent", "packed")
model = Language(nn.LSTM(WIDTH, WIDTH) if recurrent else nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))
shape = (BATCH, LENGTH) if form in ("batch first", "inside") else (LENGTH, BATCH)
words = [torch.randint(0, 9, shape) for _ in range(50)]
if form in ("search", "accumulation", "no optimizer"):
    model = nn.Linear(WIDTH, 9)
    words = [torch.randn(4 if form == "accumulation" else BATCH, WIDTH) for _ in range(150)]
elif form == "compiled":
    model = torch.compile(model, backend="eager")
elif form == "collated":
    # Sequences as columns, which a loader makes of samples.
    words = DataLoader(
        [torch.randint(0, 9, (LENGTH,)) for _ in range(600)], BATCH, collate_fn=lambda all: torch.stack(all, 1)
    )
elif form == "sequences alone":
    model = nn.LSTM(WIDTH, 9)
    words = [torch.randn(LENGTH, BATCH, WIDTH) for _ in range(50)]
optimizer = (
    None
    if form == "no optimizer"
    else torch.optim.LBFGS(model.parameters(), 0.1, max_iter=4)
    if form == "search"
    else torch.optim.SGD(model.parameters(), 0.1)
)


def loss_of(batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch)
    loss = (loss[0] if isinstance(loss, tuple) else loss).square().mean()
    loss.backward()
    return loss


for number, batch in enumerate((batch for _ in range(rounds) for batch in words), 1):
    if form == "search":

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            optimizer.zero_grad()
            return loss_of(batch)

        optimizer.step(closure)
        continue
    loss_of(batch)
    if optimizer is None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        model.zero_grad()
    elif form != "accumulation" or not number % 3:
        optimizer.step()
        optimizer.zero_grad()
