"""What is planted in the cases of the half that is held out."""

from functools import partial

from tests.planted import cases

Case = partial(cases.Case, half=cases.HELD_OUT)
TF32, BF16 = {"precision": "tf32"}, {"precision": "bf16"}

CASES = (
    Case(
        name="unet_timed_stages", family="convolutional", kind="readings", settings=TF32,
        planted="Stages are timed with torch.cuda.synchronize(), and hits of each class are read per small batch.",
        first_cause=("synchronisation",), graph_possible=False,
        remedy="Neither waits nor reads; losses and hits stay on the GPU.",
    ),
    Case(
        name="detector_positive_anchors", family="convolutional", kind="boolean masks", settings=TF32,
        planted="Anchors are selected by boolean masks in each image, for which the host waits.",
        first_cause=("synchronisation", "host-launches"), graph_possible=False,
        remedy="All anchors of all images count, with weights of 0 and 1.",
    ),
    Case(
        name="recommender_host_embeddings", family="recommender", kind="host data", settings=TF32,
        planted="Rows of tables on the host are gathered there and copied from pageable memory, field by field.",
        first_cause=("transfer", "synchronisation", "host-work"), graph_possible=False,
        remedy="The tables are on the GPU.",
    ),
    Case(
        name="vit_moe_where", family="mixture of experts", kind="experts", settings=TF32,
        planted="Each expert looks for its patches with `torch.where`, and adds its results to theirs.",
        first_cause=("looped experts", "synchronisation"), graph_possible=False,
        remedy="All experts on all patches by batched products, weighted by 0 where they are not chosen.",
    ),
    Case(
        name="lstm_time_steps", family="recurrent", kind="loops", settings=TF32,
        planted="LSTM cells are called for one word after the other.",
        first_cause=("looped steps", "host-launches"), graph_possible=True,
        remedy="cuDNN's LSTM over the whole text.",
    ),
    Case(
        name="diffusion_written_attention", family="diffusion", kind="attention", settings=BF16,
        planted="Attention between pixels is written out with einsum and softmax in fp32.",
        first_cause=("unfused attention",), graph_possible=True,
        remedy="scaled_dot_product_attention.",
    ),
    Case(
        name="lstm_smoothed_loss", family="recurrent", kind="loss", settings=TF32,
        planted="A smoothed cross-entropy over 40,000 words is a product with smoothed targets of that size.",
        first_cause=("unfused loss",), graph_possible=True,
        remedy="torch's cross_entropy with label_smoothing.",
    ),
    Case(
        name="vit_written_layers", family="transformer", kind="layers", settings=BF16,
        planted="Layer norms and GELU are written out from their formulas.",
        first_cause=("unfused normalisation", "unfused activation", "memory-bound elementwise"), graph_possible=True,
        remedy="torch's LayerNorm and GELU.",
    ),
    Case(
        name="gnn_dense_adjacency", family="graph network", kind="one-hot",
        planted="Neighbours are summed by a product with an adjacency matrix that is nearly all zero.",
        first_cause=("one-hot product", "redundant work"), graph_possible=True,
        remedy="Features are gathered along the edges and added.",
    ),
    Case(
        name="contrastive_weight_average", family="convolutional", kind="optimizer", settings=TF32,
        planted="A slow copy of the weights follows by a loop over parameters and running means.",
        first_cause=("looped optimizer", "host-launches"), graph_possible=True,
        remedy="One foreach operation.",
    ),
    Case(
        name="diffusion_emptied_cache", family="diffusion", kind="emptied cache", settings=TF32,
        planted="Memory is given back to the driver before and after each small batch's backward pass.",
        first_cause=("allocator",), graph_possible=True,
        remedy="Without the calls.",
    ),
    Case(
        name="gpt_full_precision", family="gpt", kind="full precision",
        planted="A GPT trains in fp32, launch by launch.",
        first_cause=("precision",), graph_possible=True,
        remedy="bf16, and the whole step in a CUDA graph.", mended={**BF16, "graph": True},
    ),
    Case(
        name="spectrogram_double", family="convolutional", kind="double precision", settings=TF32,
        planted="A window and filters from numpy make spectrograms fp64.",
        first_cause=("double precision",), graph_possible=True,
        remedy="Window and filters are converted to fp32 once.",
    ),
    Case(
        name="convnext_permuted_norms", family="convolutional", kind="conversions", settings=BF16,
        planted="Maps are permuted and copied for each norm and linear layer, and back for each convolution.",
        first_cause=("layout",), graph_possible=True,
        remedy="channels_last, in which permuted maps are views.",
    ),
    Case(
        name="recommender_long_histories", family="recommender", kind="padding", settings=TF32,
        planted="Histories of at most 100 items are padded to 500.",
        first_cause=("padding",), graph_possible=True,
        remedy="Histories are cut to 100.",
    ),
    Case(
        name="topics_slow_collate", family="transformer", kind="slow input", settings=BF16,
        planted="Batches are put together word by word in Python.",
        first_cause=("input",), graph_possible=True,
        remedy="The same by operations on whole tensors.",
    ),
    Case(
        name="gpt_without_cache", family="generating", kind="generation", phase="inference", settings=BF16,
        planted="For each token the whole text is read again.",
        first_cause=("redundant work",), graph_possible=True,
        remedy="Keys and values are kept.",
    ),
    Case(
        name="vit_checkpointed", family="transformer", kind="redundant work", settings=BF16,
        planted="Each block is computed again in the backward pass, though memory is not short.",
        first_cause=("redundant work",), graph_possible=True,
        remedy="Without checkpoints.",
    ),
    Case(
        name="speech_changing_lengths", family="convolutional", kind="changing shapes", phase="inference",
        settings=TF32,
        planted="cuDNN times its algorithms for sounds of a new length in each step.",
        first_cause=("recompilation",), graph_possible=False,
        remedy="cuDNN chooses by its heuristics.",
    ),
    Case(
        name="recommender_prefetch_thread", family="recommender", kind="cpu contention", settings=TF32,
        planted="A thread draws the next examples in pure Python and holds the interpreter's lock.",
        first_cause=("cpu contention", "host-work"), graph_possible=True,
        remedy="numpy draws the examples.",
    ),
)  # fmt: skip
