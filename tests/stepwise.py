"""An LSTM that runs a step of the sequence at a time, as none of the zoo may: what tests and benchmarks hold it against."""

from torch import Tensor, nn

from models import lstm


class Stepwise(nn.Module):
    """From (word vectors (batch, steps, features), lengths) to class scores, by a loop of LSTMCell."""

    def __init__(self, hidden: int = lstm.SHAPE["hidden"]) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(lstm.SHAPE["features"], hidden)
        self.head = nn.Linear(hidden, lstm.SHAPE["classes"])

    def forward(self, text: tuple[Tensor, Tensor]) -> Tensor:
        """Class scores after the last word."""
        state = None
        for words in text[0].unbind(1):
            state = self.cell(words, state)
        return self.head(state[0])
