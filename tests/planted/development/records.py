"""What is planted in the cases of the development half."""

from functools import partial

from tests.planted import cases

Case = partial(cases.Case, half=cases.DEVELOPMENT)
TF32, BF16 = {"precision": "tf32"}, {"precision": "bf16"}

CASES = (
    Case(
        name="gpt_gradient_norms", family="gpt", kind="readings",
        planted="The norm of each parameter's gradient is read with `.item()` before the optimizer's step.",
        first_cause=("synchronisation",), graph_possible=False,
        remedy="One foreach norm of all gradients, which stays on the GPU.",
    ),
    Case(
        name="bert_masked_words", family="transformer", kind="boolean masks", settings=BF16,
        planted="Words of each kind of mask are selected by boolean masks after each layer, for which the host waits.",
        first_cause=("synchronisation",), graph_possible=False,
        remedy="A known number of masked places is found by topk, and gathered for all kinds at once.",
    ),
    Case(
        name="diffusion_schedules", family="diffusion", kind="host data", settings=TF32,
        planted="Constants of the noise schedule are computed by Python and copied to the GPU in every step.",
        first_cause=("host-work", "synchronisation", "transfer"), graph_possible=False,
        remedy="The schedule is a buffer on the GPU.",
    ),
    Case(
        name="gpt_moe_nonzero", family="mixture of experts", kind="experts", settings=TF32,
        planted="Experts are called one after the other on rows that `nonzero` finds.",
        first_cause=("looped experts", "synchronisation"), graph_possible=False,
        remedy="Rows are sorted into slots of fixed capacity, and all experts are batched products.",
    ),
    Case(
        name="vit_heads", family="transformer", kind="loops", settings=TF32,
        planted="Each attention head is a module of its own, called one after the other.",
        first_cause=("looped heads", "host-launches"), graph_possible=True,
        remedy="One product for the queries of all heads, and one attention.",
    ),
    Case(
        name="gpt_written_attention", family="gpt", kind="attention", settings=BF16,
        planted="Causal attention is written out, with its mask and its softmax in fp32.",
        first_cause=("unfused attention",), graph_possible=True,
        remedy="scaled_dot_product_attention.",
    ),
    Case(
        name="gpt_written_loss", family="gpt", kind="loss", settings=BF16,
        planted="Cross-entropy over 50,304 words is written out with exp, sum, division and logarithm.",
        first_cause=("unfused loss",), graph_possible=True,
        remedy="torch's cross_entropy.",
    ),
    Case(
        name="llama_written_norms", family="gpt", kind="layers", settings=BF16,
        planted="RMS norms are written out in fp32.",
        first_cause=("unfused normalisation", "memory-bound elementwise"), graph_possible=True,
        remedy="torch's RMSNorm.",
    ),
    Case(
        name="recommender_one_hot", family="recommender", kind="one-hot", settings=TF32,
        planted="Embeddings are looked up by products with one-hot vectors.",
        first_cause=("one-hot product", "redundant work"), graph_possible=True,
        remedy="An embedding of all tables at once.",
    ),
    Case(
        name="resnet_for_loop", family="convolutional", kind="optimizer", settings=TF32,
        planted="AdamW updates one parameter after the other (`foreach=False`).",
        first_cause=("looped optimizer", "host-launches"), graph_possible=True,
        remedy="AdamW with `foreach=True`.",
    ),
    Case(
        name="resnet_emptied_cache", family="convolutional", kind="emptied cache", settings=TF32,
        planted="`torch.cuda.empty_cache()` is called after each block of the forward pass.",
        first_cause=("allocator",), graph_possible=True,
        remedy="Without the call.",
    ),
    Case(
        name="vit_full_precision", family="transformer", kind="full precision",
        planted="A ViT trains in fp32, launch by launch.",
        first_cause=("precision",), graph_possible=True,
        remedy="bf16, and the whole step in a CUDA graph.", mended={**BF16, "graph": True},
    ),
    Case(
        name="gnn_double_degrees", family="graph network", kind="double precision", settings=TF32,
        planted="Degrees from numpy are fp64, and so is every layer after the first.",
        first_cause=("double precision",), graph_possible=True,
        remedy="Degrees are converted to fp32 once.",
    ),
    Case(
        name="albert_cast_weights", family="transformer", kind="conversions",
        planted="Layers share their weights, and each layer converts them to bf16 again.",
        first_cause=("casts", "redundant work"), graph_possible=True,
        remedy="Weights are converted once in a step.",
    ),
    Case(
        name="bert_padding", family="transformer", kind="padding", settings=BF16,
        planted="Texts of at most 128 words are padded to 512.",
        first_cause=("padding",), graph_possible=True,
        remedy="Texts are padded to the longest in the batch.",
    ),
    Case(
        name="resnet_slow_decoding", family="convolutional", kind="slow input", settings=TF32,
        planted="Images are decompressed and scaled in the training process, without workers.",
        first_cause=("input",), graph_possible=True,
        remedy="Four workers and pinned memory.", mended={"workers": 4, "pin_memory": True},
    ),
    Case(
        name="gpt_read_tokens", family="generating", kind="generation", phase="inference", settings=BF16,
        planted="Each generated token of each text is read with `.item()`.",
        first_cause=("synchronisation",), graph_possible=False,
        remedy="Tokens stay on the GPU until the end.",
    ),
    Case(
        name="gan_kept_graph", family="gan", kind="redundant work", settings=TF32,
        planted="The discriminator's loss goes back through the generator, whose gradients are then forgotten.",
        first_cause=("redundant work",), graph_possible=True,
        remedy="The generated images are detached.",
    ),
    Case(
        name="detector_changing_sizes", family="convolutional", kind="changing shapes",
        settings={**TF32, "cudnn_benchmark": True},
        planted="cuDNN times its algorithms of the first layer for images of a new size in each step.",
        first_cause=("recompilation",), graph_possible=False,
        remedy="cuDNN chooses by its heuristics.", mended={"cudnn_benchmark": False},
    ),
    Case(
        name="gpt_busy_thread", family="gpt", kind="cpu contention", settings=TF32,
        planted="A thread sums up a log in pure Python and holds the interpreter's lock while the step is launched.",
        first_cause=("cpu contention", "host-work"), graph_possible=True,
        remedy="numpy sums up the log.",
    ),
)  # fmt: skip
