"""An LSTM that runs one step of the sequence at a time. Tests and benchmarks compare the zoo's LSTM with it."""

from torch import Tensor, nn

from models import lstm


class Stepwise(nn.Module):
    """Computes class scores from (word vectors (batch, steps, features), lengths), by a loop of LSTMCell."""

    def __init__(self, hidden: int = lstm.SHAPE["hidden"]) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(lstm.SHAPE["features"], hidden)
        self.head = nn.Linear(hidden, lstm.SHAPE["classes"])

    def forward(self, text: tuple[Tensor, Tensor]) -> Tensor:
        state = None
        for words in text[0].unbind(1):
            state = self.cell(words, state)
        return self.head(state[0])
