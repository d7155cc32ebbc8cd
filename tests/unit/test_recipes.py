"""Recipes: every setting that plans propose has one, its lines run, and they change what they say."""

import ast
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, TensorDataset, dataloader

from profzoo.cell import schema, settings
from profzoo.plans import recipes
from profzoo.verdicts.rules import rules as verdict_rules

# Places of the loader, the network, and the optimizer of a script.
MADE: Any = [
    {"kind": "model", "name": "", "file": "train.py", "line": 14},
    {"kind": "optimizer", "name": "AdamW", "file": "train.py", "line": 15},
    {"kind": "optimizer", "name": "SGD", "file": "train.py", "line": 16},
    {"kind": "loader", "name": "", "file": "own/data.py", "line": 9},
    {"kind": "call", "name": "", "file": "train.py", "line": 21},
]


class Samples(Dataset):
    """Images of 1, and the number of the process that made each one."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return torch.ones(3, 8, 8), torch.tensor(os.getpid())


class Operators(TorchDispatchMode):
    """Notes the names of all operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def program(device: str = "cpu") -> dict[str, Any]:
    """The names that recipes use, as a program has them before its first step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(144, 5))
    ).to(device)
    inputs, targets = torch.rand(4, 3, 8, 8, device=device), torch.randint(0, 5, (4,), device=device)
    return {"torch": torch, "DataLoader": DataLoader, "dataset": Samples(), "loader": [(inputs, targets)] * 3,
            "model": model, "optimizer": torch.optim.Adam(model.parameters()), "criterion": nn.CrossEntropyLoss(),
            "inputs": inputs, "targets": targets, "device": device, "batch_size": 4, "learning_rate": 1e-3}  # fmt: skip


def train(names: Mapping[str, Any]) -> Tensor:
    """A step as the program had it, with what a recipe has changed."""
    names["optimizer"].zero_grad(set_to_none=True)
    outputs: Tensor = names["model"](names["inputs"])
    names["criterion"](outputs, names["targets"]).backward()
    names["optimizer"].step()
    return outputs


def run_lines(words: str, device: str = "cpu") -> dict[str, Any]:
    """The names of a program after the lines of a recipe, which must be the only one of these words."""
    (declared,) = [one for one in recipes.load_recipes() if one.choose_words(words.split())][:1]
    names = program(device)
    exec(compile(declared.fill(words.split(), device=device).lines, words, "exec"), names)
    return names


def weights(names: Mapping[str, Any]) -> Tensor:
    found: Tensor = names["model"][1][1].weight.detach().clone()
    return found


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    """Torch's global settings of arithmetic stay as they are."""
    found = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(found[0])
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = found[1:]


def proposed() -> dict[str, str]:
    """Words of all settings that rules advise and that trials try, by the name of the rule or variant."""
    known = verdict_rules.load_rules()["rules"]
    advice = [(rule["verdict"], one) for rule in known for one in rule["advice"]]
    found = {f"{verdict}: {words}": words for verdict, one in advice if (words := one.get("settings"))}
    found |= {f"{verdict}: twice": f"{name}=8" for verdict, one in advice if (name := one.get("doubled"))}
    whole = schema.load_schema()["properties"]
    for tried in whole["trials"]["properties"]["panel"]["default"]:
        own = [whole["variants"]["default"].get(name, {}) for name in settings.split_names(tried)]
        found[tried] = " ".join(f"{key}={settings.setting_word(value)}" for one in own for key, value in one.items())
    return found


def test_every_setting_that_is_proposed_has_a_recipe() -> None:
    found = proposed()
    assert len(found) > 20 and "precision=bf16" in found.values() and "compile=reduce-overhead" in found.values()
    for name, words in found.items():
        covered = [word for one in recipes.list_recipes(words) for word in one.setting.split()]
        assert sorted(covered) == sorted(words.split()), name


def test_recipes_are_lines_of_python_with_all_that_a_reader_needs() -> None:
    values = {"workers": "4", "batch": "16", "compile": "default", "optimizer": "for_loop"}
    known, judged = recipes.load_recipes(), {rule["verdict"] for rule in verdict_rules.load_rules()["rules"]}
    for place, one in enumerate(known):
        words = [word.replace("*", values.get(word.partition("=")[0], "")) for word in one.patterns]
        filled = one.fill(words, "AdamW")
        assert ast.parse(filled.lines).body and len(ast.parse(filled.short).body) == 1
        assert filled.at in ("model", "optimizer", "loader", "call", "start") and filled.where
        assert filled.caveat.endswith(".") and filled.link.startswith("https://docs.pytorch.org/")
        # What is joined by semicolons can be told apart, and nothing is left to fill in.
        assert "; " not in filled.short and not re.search(r"\{\w+\}|\*|\n", filled.short)
        # It is of a setting or of a verdict, and no earlier one takes its place.
        assert bool(one.setting) is not bool(one.verdict) and one.verdict in {"", *judged}
        assert not one.setting or all(other.choose_words(words) != words for other in known[:place])


@pytest.mark.parametrize(
    ("words", "short"),
    [
        ("workers=4 pin_memory=true", "own/data.py:9: DataLoader(..., num_workers=4, pin_memory=True)"),
        ("pin_memory=true", "own/data.py:9: DataLoader(..., pin_memory=True)"),
        ("precision=bf16 graph=true", 'train.py:21: torch.autocast("cuda", torch.bfloat16); train.py:21: with torch.cuda.graph(graph): step()'),
        ("optimizer=fused", "train.py:15, train.py:16: torch.optim.AdamW(..., fused=True)"),
        ("cudnn_benchmark=true threads=2", "torch.backends.cudnn.benchmark = True"),
        ("threads=2", ""),
    ],
)  # fmt: skip
def test_the_short_form_names_the_place_in_a_script(words: str, short: str) -> None:
    assert recipes.format_recipes(words, MADE) == short
    explained = recipes.explain_recipes(words, short)
    assert bool(explained) is bool(short) and all("optim.Adam(" not in one.lines for one in explained)
    # Of a model of the zoo no place is known.
    assert ".py" not in recipes.format_recipes(words)


@pytest.mark.filterwarnings("ignore:.*no accelerator is found")
def test_workers_load_in_processes_of_their_own_and_pin_their_batches() -> None:
    for words, workers in (("workers=2", 2), ("workers=2 pin_memory=true", 2), ("pin_memory=true", 0)):
        loader = run_lines(words)["loader"]
        makers = {int(one) for _, by in loader for one in by}
        assert loader.num_workers == workers and (os.getpid() in makers) is (workers == 0), words
        assert loader.pin_memory is ("pin_memory" in words)
    assert len(next(iter(run_lines("batch=6")["loader"]))[0]) == 6


def test_autocast_computes_products_in_the_narrow_type_and_the_step_still_trains() -> None:
    before = weights(program())
    for words, kind in (("precision=bf16", torch.bfloat16), ("precision=fp16", torch.float16)):
        names = run_lines(words)
        assert names["outputs"].dtype == kind and names["model"][1][1].weight.grad.dtype == torch.float32, words
        if words == "precision=fp16":
            assert names["scaler"].is_enabled() and not torch.equal(weights(names), before)
    assert train(program()).dtype == torch.float32


@pytest.mark.parametrize(
    ("words", "has", "lacks"),
    [
        ("fused", "_fused_adam_", "_foreach_addcdiv"),
        ("foreach", "_foreach_addcdiv_", "_fused"),
        ("for_loop", "addcdiv_", "_f"),
    ],
)
def test_an_optimizer_runs_the_implementation_that_it_is_given(words: str, has: str, lacks: str) -> None:
    names = run_lines(f"optimizer={words}")
    train(names)
    with Operators() as seen:
        names["optimizer"].step()
    assert any(f"aten.{has}" in name for name in seen.names) and not any(f"aten.{lacks}" in name for name in seen.names)


@pytest.mark.parametrize(("words", "times"), [("checkpoint=true", 2), ("checkpoint=false", 1)])
def test_blocks_are_computed_again_only_with_checkpoints(words: str, times: int) -> None:
    names, calls = program(), []
    names["model"][1].register_forward_pre_hook(lambda *_: calls.append(1))
    (lines,) = [one.lines for one in recipes.list_recipes(words)]
    exec(lines, names)
    names["criterion"](names["outputs"], names["targets"]).backward()
    assert len(calls) == times


def test_images_and_weights_are_in_channels_last_order() -> None:
    names = run_lines("channels_last=true")
    assert all(
        one.is_contiguous(memory_format=torch.channels_last) for one in (names["model"][0][0].weight, names["inputs"])
    )
    assert (
        names["model"][0](names["inputs"]).is_contiguous(memory_format=torch.channels_last) and train(names).dim() == 2
    )


def test_settings_of_the_process_are_set() -> None:
    run_lines("precision=tf32")
    assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
    for value in (True, False):
        run_lines(f"cudnn_benchmark={str(value).lower()}")
        assert torch.backends.cudnn.benchmark is value


@pytest.mark.parametrize("words", ["compile=true", "compile=reduce-overhead", "compile=max-autotune-no-cudagraphs"])
def test_a_network_is_compiled_in_the_mode(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its forward pass is traced by torch.compile's own front end, without the time of a C++ compiler."""
    modes, compile_as_it_is = [], torch.compile

    def traced(model: nn.Module, mode: str = "default") -> Callable:
        modes.append(mode)
        return compile_as_it_is(model, backend="eager")

    monkeypatch.setattr(torch, "compile", traced)
    names = run_lines(words)
    assert train(names).shape == (4, 5) and isinstance(names["model"], torch._dynamo.OptimizedModule)
    assert modes == [words.partition("=")[2].replace("true", "default")]


def _norm(one: Tensor) -> Tensor:
    return (one - one.mean(-1, keepdim=True)) / (one.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()


def _gelu(one: Tensor) -> Tensor:
    return 0.5 * one * (1 + torch.tanh(math.sqrt(2 / math.pi) * (one + 0.044715 * one**3)))


# By verdict: the code as it is written, by the names that the recipe uses and by the name that it assigns.
WRITTEN: Mapping[str, Callable[[Mapping[str, Any]], tuple[str, Any]]] = {
    "unfused attention": lambda of: ("outputs", ((of["queries"] @ of["keys"].mT / 2).masked_fill(~of["mask"], -torch.inf).softmax(-1) @ of["values"])),
    "unfused loss": lambda of: ("loss", -of["scores"].log_softmax(-1)[range(3), of["targets"]].mean()),
    "unfused softmax": lambda of: ("outputs", of["scores"].exp() / of["scores"].exp().sum(-1, keepdim=True)),
    "unfused normalisation": lambda of: ("outputs", _norm(of["inputs"]) * of["weight"] + of["bias"]),
    "unfused activation": lambda of: ("outputs", _gelu(of["inputs"])),
    "one-hot product": lambda of: ("outputs", nn.functional.one_hot(of["numbers"], 5).float() @ of["table"]),
    "looped gradient norms": lambda of: ("norm", sum(one.grad.square().sum() for one in of["parameters"]).sqrt()),
    "looped weight average": lambda of: ("averages", [old * of["decay"] + new * (1 - of["decay"]) for old, new in zip(of["averages"], of["weights"], strict=True)]),
}  # fmt: skip


@pytest.mark.parametrize("verdict", WRITTEN)
def test_what_a_verdict_advises_computes_what_was_written(verdict: str) -> None:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(2, 2))]
    for one in parameters:
        one.grad = torch.rand_like(one)
    names = {"torch": torch, "queries": torch.rand(2, 3, 4), "keys": torch.rand(2, 3, 4), "values": torch.rand(2, 3, 4),
             "mask": torch.ones(3, 3, dtype=torch.bool).tril(), "scores": torch.rand(3, 5), "targets": torch.tensor([0, 4, 2]),
             "inputs": torch.rand(3, 6), "weight": torch.rand(6), "bias": torch.rand(6), "numbers": torch.tensor([4, 0]),
             "table": torch.rand(5, 2), "parameters": parameters, "decay": 0.9,
             "averages": [torch.rand(3)], "weights": [torch.rand(3)]}  # fmt: skip
    name, written = WRITTEN[verdict](names)
    found = recipes.find_verdict_recipe(verdict)
    assert found
    exec(found.lines, names)
    torch.testing.assert_close(names[name], written)


def test_workers_of_the_advised_loader_stay_from_epoch_to_epoch() -> None:
    dataset = TensorDataset(torch.randn(6, 2), torch.arange(6))
    found = recipes.find_verdict_recipe("restarted workers")
    assert found
    names: dict[str, Any] = {"DataLoader": DataLoader, "dataset": dataset, "batch_size": 3}
    began, original = [], dataloader._MultiProcessingDataLoaderIter.__init__
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            dataloader._MultiProcessingDataLoaderIter, "__init__", lambda *given: (began.append(1), original(*given))[1]
        )
        exec(found.lines, names)
    assert began == [1]


def test_every_recipe_of_a_verdict_is_compared_with_what_is_written() -> None:
    """But for loaders, and for copies from pinned memory, which only a GPU has."""
    others = {"pageable copies", "restarted workers"}
    assert {one.verdict for one in recipes.load_recipes() if one.verdict} == {*WRITTEN, *others}
