"""Says in plain words what a setting changes."""

from profzoo.plans.infeasible_settings import parse_typed

# By word, or by key with the place of its value.
_CHANGES = {
    "graph=true": "launch the whole step as one CUDA graph",
    "precision=tf32": "compute matrix products and convolutions in tf32 on tensor cores",
    "precision=bf16": "compute in bf16 where autocast does",
    "precision=fp8": "compute linear layers in fp8 on tensor cores, everything else as with bf16",
    "precision=int8": "compute linear layers in int8 on tensor cores, everything else as with bf16",
    "precision=fp16": "compute in fp16 where autocast does, in training with a gradient scaler",
    "compile=true": "compile the network with torch.compile",
    "compile": "compile the network with torch.compile in the mode {}",
    "channels_last=true": "keep images and convolution weights in channels-last order",
    "pin_memory=true": "copy batches from pinned memory",
    "workers": "load batches in {} worker processes",
    "batch": "put {} data samples into a batch",
    "optimizer": "use torch's {} implementation of the optimizer",
    "checkpoint=true": "compute activations again in the backward pass",
    "cudnn_benchmark=true": "let cuDNN time its algorithms and use the fastest",
}


def describe_changes(words: str) -> str:
    """Say what settings change.

    >>> describe_changes("graph=true precision=bf16")
    'launch the whole step as one CUDA graph; compute in bf16 where autocast does'
    >>> describe_changes("workers=4 threads=2")
    'load batches in 4 worker processes; set threads to 2'
    """
    return "; ".join(_describe(word) for word in words.split())


def _describe(word: str) -> str:
    key, _, value = word.partition("=")
    assert key in parse_typed(word)
    return _CHANGES.get(word, _CHANGES.get(key, f"set {key} to {{}}")).format(value)
