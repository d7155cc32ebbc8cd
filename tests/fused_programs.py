"""Small networks with work written out that torch has a fused operator for, each with a twin that uses this operator."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function

from profzoo.fusion.calls import Call, Flow, read_step
from profzoo.fusion.chains import Chain, find_chains
from profzoo.fusion.patterns import FINDERS
from profzoo.harness import ranges
from profzoo.op_costs.tensor_effects import call_effects, kind_of
from profzoo.range_names import DOMAIN
from profzoo.tools.torch.trace import make_trace
from tests import owned, trace_calls

BATCH, PLACES, WIDTH, HEADS, WORDS = 3, 12, 32, 4, 96


class Attention(nn.Module):
    """Attention with a causal mask: written out, with its softmax in fp32 and dropout if asked for; or fused."""

    def __init__(self, fused: bool = False, einsum: bool = False, careful: bool = False) -> None:
        """careful: mask with `where`, softmax in double precision, dropout."""
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fused, self.einsum, self.careful = fused, einsum, careful

    def forward(self, x: Tensor) -> Tensor:
        batch, places, _ = x.shape
        q, k, v = self.qkv(x).view(batch, places, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) if self.einsum else q @ k.transpose(-2, -1)
            scores = scores / math.sqrt(WIDTH // HEADS)
            mask = torch.ones(places, places, dtype=torch.bool).tril()
            if self.careful:
                scores = torch.where(mask, scores, torch.tensor(-1e9))
                y = F.dropout(scores.double().softmax(-1).to(x.dtype), 0.1) @ v
            else:
                y = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, places, WIDTH))


class LayerNorm(nn.Module):
    """Layer norm, written out."""

    def __init__(self, variance: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.variance = variance

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        spread = x.var(-1, keepdim=True, unbiased=False) if self.variance else centred.pow(2).mean(-1, keepdim=True)
        return centred / torch.sqrt(spread + 1e-5) * self.weight + self.bias


class RMSNorm(nn.Module):
    """RMS norm, written out, as in Llama of the library transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float64)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def gelu_erf(x: Tensor) -> Tensor:
    """GELU by the error function."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def silu(x: Tensor) -> Tensor:
    """SiLU, written out."""
    return x * torch.sigmoid(x)


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension, written out."""
    powers = torch.exp(x - x.max(-1, keepdim=True).values)
    return powers / powers.sum(-1, keepdim=True)


def rotated(x: Tensor) -> Tensor:
    """Rotary embedding of places."""
    angles = torch.outer(torch.arange(float(x.shape[-2])), torch.ones(x.shape[-1]))
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * angles.cos() + turned * angles.sin()


class Applied(nn.Module):
    """A function or module between two layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        """function: from (batch, places, width) to the same."""
        super().__init__()
        self.before, self.after, self.function = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), function

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.function(self.before(x)))


class LSTMCell(nn.Module):
    """The gates of an LSTM, written out over time steps: sigmoid and tanh, but no activation function of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * WIDTH, 4 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(x.shape[0], WIDTH)
        states = []
        for place in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat((x[:, place], h), -1)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1)


class Experts(nn.Module):
    """A mixture of experts: a loop over experts with the rows of each, or one product for all of them."""

    def __init__(self, looped: bool, number: int = 6) -> None:
        super().__init__()
        self.router, self.looped = nn.Linear(WIDTH, number), looped
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH)) for _ in range(number if looped else 0)
        )
        self.up, self.down = (nn.Parameter(torch.randn(number, *two) / 8) for two in ((WIDTH, 64), (64, WIDTH)))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, WIDTH)
        weights = self.router(flat).softmax(-1)
        if not self.looped:
            hidden = torch.relu(torch.bmm(flat.expand(len(self.up), -1, -1), self.up))
            return (torch.bmm(hidden, self.down) * weights.t()[..., None]).sum(0).view_as(x)
        best, chosen = weights.max(-1)
        y = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            y.index_add_(0, rows, expert(flat[rows]) * best[rows, None])
        return y.view_as(x)


class OwnExperts(Experts):
    """The same loop without modules for the experts."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, WIDTH)
        best, chosen = self.router(flat).softmax(-1).max(-1)
        # All experts but one have rows.
        chosen = torch.arange(len(flat)) % (len(self.up) - 1)
        y = torch.zeros_like(flat)
        for number in range(len(self.up)):
            rows = (chosen == number).nonzero().squeeze(1)
            if not len(rows):
                continue
            y = y.index_add(0, rows, torch.relu(flat[rows] @ self.up[number]) @ self.down[number])
        return (y * best[:, None]).view_as(x)


class Head(nn.Module):
    """Attention of one head."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, size) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


class HeadModules(nn.Module):
    """Heads that are modules, beside each other or, as layers of a stack, one on the other."""

    def __init__(self, stacked: bool = False) -> None:
        """stacked: each takes what the one before made."""
        super().__init__()
        self.heads = nn.ModuleList(Head(WIDTH if stacked else WIDTH // HEADS) for _ in range(HEADS))
        self.stacked = stacked

    def forward(self, x: Tensor) -> Tensor:
        if not self.stacked:
            return torch.cat([head(x) for head in self.heads], -1)
        for head in self.heads:
            x = x + head(x)
        return x


class EinsumOneHot(nn.Module):
    """Rows of several tables at once by one-hot vectors."""

    def __init__(self, picked: bool = False) -> None:
        super().__init__()
        self.tables, self.picked = nn.Parameter(torch.randn(PLACES, WORDS, WIDTH)), picked

    def forward(self, x: Tensor) -> Tensor:
        rows = (x[..., 0].abs() * 7).long() % WORDS
        if self.picked:
            return self.tables[torch.arange(PLACES), rows]
        return torch.einsum("bfr,frw->bfw", F.one_hot(rows, WORDS).to(self.tables.dtype), self.tables)


class LoopedHeads(Attention):
    """Attention, head by head."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        size, heads = WIDTH // HEADS, []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = q[..., part] @ k[..., part].transpose(-2, -1) / math.sqrt(size)
            heads.append(scores.softmax(-1) @ v[..., part])
        return self.out(torch.cat(heads, -1))


class CastWeights(nn.Module):
    """A layer that changes the type of its weight in each call."""

    def __init__(self, kept: bool = False) -> None:
        """kept: the weight has the type already."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16 if kept else torch.float32) / 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.bfloat16(), self.weight.to(torch.bfloat16)).float()


class OneHot(nn.Module):
    """Rows of a table by a product with one-hot vectors, or by their numbers."""

    def __init__(self, picked: bool = False) -> None:
        super().__init__()
        self.table, self.picked = nn.Parameter(torch.randn(WORDS, WIDTH)), picked

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, places, width), of which the first feature chooses, to the same."""
        rows = (x[..., 0].abs() * 7).long() % WORDS
        return F.embedding(rows, self.table) if self.picked else F.one_hot(rows, WORDS).float() @ self.table


class Classifier(nn.Module):
    """Scores of words for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).view(-1, WORDS)


def mean_square(y: Tensor) -> Tensor:
    """A loss of any output."""
    return y.square().mean()


def targets(y: Tensor) -> Tensor:
    """A word for each row of scores."""
    return torch.arange(len(y)) % WORDS


def gathered(y: Tensor) -> Tensor:
    """Cross-entropy by a gather from log-softmax."""
    return -y.log_softmax(-1).gather(-1, targets(y)[:, None]).mean()


def summed(y: Tensor) -> Tensor:
    """Cross-entropy by exponentials and their sum."""
    largest = y.max(-1, keepdim=True).values
    total = torch.log(torch.exp(y - largest).sum(-1)) + largest[:, 0]
    return (total - y[torch.arange(len(y)), targets(y)]).mean()


def one_hot(y: Tensor) -> Tensor:
    """Cross-entropy by one-hot targets."""
    return -(F.one_hot(targets(y), WORDS).float() * torch.log_softmax(y, -1)).sum(-1).mean()


def torchs_loss(y: Tensor) -> Tensor:
    """Cross-entropy by torch's function."""
    return F.cross_entropy(y, targets(y))


def soft_targets(y: Tensor) -> Tensor:
    """Cross-entropy with probabilities, by torch's function, which has no fused kernel for it."""
    return F.cross_entropy(y, torch.full_like(y, 1 / WORDS))


Optimize = Callable[[list[nn.Parameter]], Callable[[], Any]]


def adam(**given: Any) -> Optimize:
    """Make an optimizer's step."""
    return lambda weights: torch.optim.Adam(weights, **given).step


def averaged(foreach: bool) -> Optimize:
    """Make a step of an optimizer with a running average of all weights behind it."""

    def make(weights: list[nn.Parameter]) -> Callable[[], None]:
        optimizer, means = torch.optim.SGD(weights, lr=1e-3), [one.detach().clone() for one in weights]

        def step() -> None:
            optimizer.step()
            with torch.no_grad():
                if foreach:
                    torch._foreach_lerp_(means, [one.detach() for one in weights], 0.1)
                else:
                    for mean, weight in zip(means, weights, strict=True):
                        mean.mul_(0.9).add_(weight, alpha=0.1)

        return step

    return make


def with_kernels(events: list[dict[str, Any]], bytes_per_ns: float) -> list[dict[str, Any]]:
    """Return events of a CPU with a launch and a kernel for each operator that does work, as a GPU has them.

    A kernel takes as long as its bytes at this rate. Kernels follow one another, and begin behind their launches.
    """
    calls, free, made = trace_calls.list_calls(events), 0.0, []
    known = {event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"}
    working: dict[int, bool] = {}
    for place, call in enumerate(calls.itertuples()):
        works, above = kind_of(call.operator) is not None, working.get(call.parent, False)
        working[place] = works or above
        if not works or above:
            continue
        event = known[call.call]
        inputs = (
            event["args"].get(name, []) for name in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")
        )
        ns = max(call_effects(call.operator, *inputs).bytes, 1) / bytes_per_ns
        launch = {name: event[name] for name in ("ph", "pid", "tid", "ts")}
        made.append((launch | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 0.5}, call, ns))
    made.sort(key=lambda one: one[0]["ts"])
    found = []
    for number, (launch, call, ns) in enumerate(made, 1_000_000):
        linked = {"correlation": number, "External id": call.call}
        free = max(free, launch["ts"] + 2.0)
        sizes = {"device": 0, "context": 1, "stream": 7, "grid": [call.call % 7 + 1, 1, 1], "block": [128, 1, 1]}
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel_of_{call.operator[6:]}", "ts": free, "dur": ns / 1e3}
        found += [
            launch | {"args": linked},
            kernel | {"pid": 0, "tid": 7, "args": linked | sizes | {"shared memory": 0}},
        ]
        free += ns / 1e3
    return [*events, *found]


def traced_steps(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor] = mean_square,
    optimize: Optimize | None = None,
    autocast: bool = False,
    count: int = 1,
) -> list[dict[str, Any]]:
    """Return the events of training steps of a network with a loss, under torch.profiler on the CPU."""
    ranges.mark_modules(network, ranges.torch_range)
    update = optimize(list(network.parameters())) if optimize else None

    def step() -> None:
        network.zero_grad(set_to_none=True)
        with record_function(f"{DOMAIN}:step"):
            with record_function(f"{DOMAIN}:forward"), torch.autocast("cpu", enabled=autocast):
                y = network(torch.randn(BATCH, PLACES, WIDTH))
            with record_function(f"{DOMAIN}:loss"):
                value = loss(y)
            with record_function(f"{DOMAIN}:backward"):
                value.backward()
            if update:
                with record_function(f"{DOMAIN}:optimizer"):
                    update()

    return owned.of_steps([step] * (count + 1))


def trace_chains(*given: Any, **named: Any) -> list[Chain]:
    """Return the chains of a step; arguments: of traced_steps."""
    return find_chains(Flow(trace_calls_of(*given, **named)), FINDERS)


def trace_calls_of(*given: Any, **named: Any) -> Sequence[Call]:
    """Return the calls of a step; arguments: of traced_steps."""
    return read_step(make_trace(traced_steps(*given, **named))).calls
