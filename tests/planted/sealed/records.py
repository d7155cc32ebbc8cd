"""What is planted in the sealed cases, and which causes count as right: written before any of them ran on a GPU."""

from functools import partial

from tests.planted import cases

PINNED = {"pin_memory": True}
TF32, BF16 = {"precision": "tf32", **PINNED}, {"precision": "bf16", **PINNED}
Case = partial(cases.Case, half=cases.SEALED, graph_possible=None)

CASES = (
    Case(
        name="retrieval_written_loss", family="retrieval", kind="loss", settings=BF16,
        planted="Softmax over 8,192 items is written out in both directions, with exp, sum, division and logarithm.",
        first_cause=("unfused loss", "unfused softmax"),
        remedy="torch's cross_entropy.",
    ),
    Case(
        name="speech_slow_augmentation", family="speech", kind="slow input", settings=TF32, setting="workers=N",
        planted="Sounds are varied and their spectra taken by numpy in `__getitem__`, in the training process.",
        first_cause=("input",),
        remedy="Six workers.", mended={"workers": 6},
    ),
    Case(
        name="conformer_written_attention", family="conformer", kind="attention", settings=BF16,
        planted="Attention with weights by distance is written out.",
        first_cause=("unfused attention",),
        remedy="scaled_dot_product_attention with the weights as its mask.",
    ),
    Case(
        name="graph_attention_repeated_walks", family="graph attention", kind="redundant work", settings=TF32,
        planted="Places of vertices, which never change, are computed by walks on the graph in each layer of each step.",
        first_cause=("repeated work",),
        remedy="Places are computed once, before the first step.",
    ),
    Case(
        name="diffusion_sampler_small_kernels", family="diffusion sampling", kind="small kernels", phase="inference",
        settings=TF32, setting="graph=true", graph_possible=True,
        planted="A U-Net for two small images is called many times, launch by launch.",
        first_cause=("host-launches",),
        remedy="A CUDA graph.", mended={"graph": True},
    ),
    Case(
        name="detection_class_masks", family="detection", kind="boolean masks", phase="inference", settings=BF16,
        planted="Boxes are selected by boolean masks, for which the host waits, one class of one image after the other.",
        first_cause=("synchronisation", "host-launches"), graph_possible=False,
        remedy="The likeliest boxes of all classes and images are found together.",
    ),
    Case(
        name="tabular_full_precision", family="tabular", kind="full precision", settings=PINNED,
        setting="precision=bf16 precision=tf32",
        planted="A transformer over the columns of a table trains in fp32.",
        first_cause=("precision",),
        remedy="bf16.", mended={"precision": "bf16"},
    ),
    Case(
        name="ppo_read_actions", family="reinforcement learning", kind="readings", settings=TF32,
        planted="The action of each drone is read with `.item()` in each move.",
        first_cause=("synchronisation",), graph_possible=False,
        remedy="All actions of a move are read at once.",
    ),
    Case(
        name="separation_own_kernel", family="speech separation", kind="own kernel", settings=TF32,
        planted="A Triton kernel of the user's own adds up a whole sound in one block, so that eight blocks have the GPU.",
        first_cause=("small grid",),
        remedy="The same kernel with 64 blocks a sound.",
    ),
    Case(
        name="video_slow_collate", family="video", kind="slow input", settings=BF16, setting="workers=N",
        planted="`collate` scales frames one after the other, and in fp64.",
        first_cause=("input",),
        remedy="Bytes go to the GPU, which scales them at once.",
    ),
    Case(
        name="points_host_neighbours", family="point clouds", kind="host data", settings=TF32,
        planted="Neighbours of points are found by a tree on the host, in the middle of the step.",
        first_cause=("host-work", "synchronisation"), graph_possible=False,
        remedy="Distances and topk on the GPU.",
    ),
    Case(
        name="forecasting_changing_lengths", family="forecasting", kind="changing shapes",
        settings={**TF32, "cudnn_benchmark": True}, setting="cudnn_benchmark=false",
        planted="Histories have another length in each step, and cuDNN times its algorithms of the first layer for it.",
        first_cause=("recompilation",), graph_possible=False,
        remedy="All histories are cut to one length.",
    ),
    Case(
        name="superresolution_layout", family="super-resolution", kind="conversions", settings=BF16,
        setting="channels_last=true",
        planted="Convolutions in bf16 bring maps into the other memory layout and back.",
        first_cause=("layout",),
        remedy="channels_last.", mended={"channels_last": True},
    ),
    Case(
        name="metalearning_looped_lion", family="meta-learning", kind="optimizer", settings=TF32,
        planted="An own optimizer (Lion) goes over the weights one after the other in each inner step.",
        first_cause=("looped optimizer", "host-launches"),
        remedy="The same by foreach operations.",
    ),
    Case(
        name="distillation_teacher_gradients", family="distillation", kind="redundant work", settings=BF16,
        planted="The loss goes back through the teacher, whose gradients nobody uses.",
        first_cause=("unused gradients",),
        remedy="The teacher runs without gradients.",
    ),
    Case(
        name="generation_grown_cache", family="generation with a cache", kind="generation", phase="inference",
        settings=BF16,
        planted="For each token, all keys and values that are kept are copied by `torch.cat`.",
        first_cause=("copies",),
        remedy="New keys and values are written into room that was made before.",
    ),
    Case(
        name="lora_cast_weights", family="low-rank adaption", kind="conversions", settings=BF16,
        planted="Frozen weights are kept in fp32 and converted to bf16 in each step.",
        first_cause=("casts",),
        remedy="They are kept in bf16.",
    ),
    Case(
        name="pinn_double_points", family="physics-informed", kind="double precision", settings=TF32,
        planted="Points from numpy are fp64, and the network is made fp64 to fit them.",
        first_cause=("double precision",),
        remedy="Points are converted to fp32 once.",
    ),
    Case(
        name="private_samples_one_by_one", family="differential privacy", kind="loops", settings=TF32,
        planted="Forward, backward and clipping run for one sample after the other.",
        first_cause=("looped steps", "host-launches"),
        remedy="Norms of all gradients are found together (vmap), and the batch goes back once, weighted by them.",
    ),
    Case(
        name="weather_pageable_states", family="weather", kind="pageable copies",
        settings={"precision": "bf16"}, setting="pin_memory=true",
        planted="States of 100 MB a step are copied from pageable memory.",
        first_cause=("transfer",), graph_possible=True,
        remedy="Pinned memory.", mended=PINNED,
    ),
)  # fmt: skip
