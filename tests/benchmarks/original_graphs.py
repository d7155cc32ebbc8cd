"""Counts parameters and operations of AI Benchmark's networks by the TensorFlow graphs in its package.

python -m tests.benchmarks.original_graphs FOLDER

in an environment of its own with tensorflow, where FOLDER holds `models/*.meta` of the package ai-benchmark 0.1.2, and
prints what `REFERENCE` of the models' files declares: parameters of the network and operations of a whole batch. gnmt's input is a text, and its operations are derived in its file.
"""

import math
import sys
from pathlib import Path
from typing import Any

# Inputs of the first inference test of each, and the steps of loops.
INPUTS = {
    "mobilenet_v2": (50, 224, 224, 3), "inception_v3": (20, 346, 346, 3), "inception_v4": (10, 346, 346, 3),
    "inception_resnet_v2": (10, 346, 346, 3), "resnet_v2_50": (10, 346, 346, 3), "resnet_v2_152": (10, 256, 256, 3),
    "vgg_16": (20, 224, 224, 3), "srcnn": (10, 512, 512, 3), "vgg19": (10, 256, 256, 3), "srgan": (10, 512, 512, 3),
    "dped": (10, 256, 256, 3), "unet": (4, 512, 512, 3), "spade": (5, 128, 128, 3), "icnet": (5, 1024, 1536, 3),
    "pspnet": (5, 720, 720, 3), "deeplab": (2, 512, 512, 3), "pixel_rnn": (50, 64, 64, 3), "lstm": (100, 1024, 300),
    "gnmt": (),
}  # fmt: skip
STEPS = {"lstm": 1024, "pixel_rnn": 127}
VARIABLES = ("VariableV2", "VarHandleOp")
# Ends of the names of other variables: running statistics, vectors of spectral norm, the state of an optimizer.
OTHERS = ("mean", "variance", "/u", "RMSProp", "RMSProp_1")


def operations(node: Any, batch: int) -> int:
    """Twice the multiplications of a node; 0 if it has none."""
    if node.type == "Conv2DBackpropInput":
        output, weights = node.inputs[2].shape, node.inputs[1].shape[:3]
    elif node.type in ("Conv2D", "DepthwiseConv2dNative"):
        output, weights = node.outputs[0].shape, node.inputs[1].shape[: 3 if node.type == "Conv2D" else 2]
    elif node.type == "MatMul":
        place = 1 if node.get_attr("transpose_b") else 0
        output, weights = node.outputs[0].shape, node.inputs[1].shape[place : place + 1]
    else:
        return 0
    return 2 * math.prod(side or batch for side in (*output.as_list(), *weights.as_list()))


def count(path: Path) -> tuple[int, int]:
    """Parameters and operations of a graph."""
    import tensorflow as tf
    from tensorflow.core.protobuf import meta_graph_pb2

    graph = meta_graph_pb2.MetaGraphDef()
    graph.ParseFromString(path.read_bytes())
    for node in graph.graph_def.node:
        node.device = ""
        node.attr.pop("_output_shapes", None)
    extent = INPUTS[path.stem]
    with tf.Graph().as_default() as built:
        given = {"input:0": tf.compat.v1.placeholder(tf.float32, extent)} if extent else {}
        tf.import_graph_def(graph.graph_def, given, name="")
        needed, waiting = set(), [built.get_operation_by_name("output")]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting += [*(one.op for one in node.inputs), *node.control_inputs]
        parameters = sum(
            math.prod(side.size for side in node.get_attr("shape").dim)
            for node in built.get_operations()
            if node.type in VARIABLES and node.get_attr("dtype") == tf.float32 and not node.name.endswith(OTHERS)
        )
        times = STEPS.get(path.stem, 1)
        products = sum(
            (times if "/while/" in node.name else 1) * operations(node, extent[0]) for node in needed if extent
        )
    return parameters, products


def main(folder: Path) -> None:
    """Print a row of each graph."""
    for path in sorted((folder / "models").glob("*.meta")):
        parameters, total = count(path)
        print(f"{path.stem:20} {parameters:15_} {total:21_}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
