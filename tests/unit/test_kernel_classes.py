"""kernel_classes: real kernels of every library end up where a reader would look for them."""

import csv
import gzip
import io
import re
from collections.abc import Callable

import pandas as pd
import pytest

from profzoo.errors import ConfigError
from profzoo.kernels import kernel_classes
from profzoo.tables import kernel_table
from profzoo.tools.kernel_signature import function_path, template_arguments
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import tables as nsys_tables
from tests.conftest import DATA

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<(int)4, {}, std::array<char *, (unsigned long)2>>(int, T2, T3)"
)
STRIDED = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<{}>(at::TensorIteratorBase&)>(int, T1)"
)
# Names that rules are for which none of the names found in public needs, and some whose rules are easily taken apart.
NAMES = {
    "copy": [
        ELEMENTWISE.format("at::native::FillFunctor<float>"),
        STRIDED.format("at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"),
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel>",
        "triton_poi_fused__to_copy_transpose_12", "[CUDA memset]",
    ],
    "attention": [
        "triton_tem_fused_flex_attention_0", "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::Problem<float>>>",
        "bwd_kernel_dk_dv", "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
    ],
    "optimizer": [
        "void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*, float*)",
        "void kPreconditionOptimizer32bit2State<float, 0, 4096, 8>(float*, float*)",
    ],
    "softmax": ["triton_per_fused__softmax_2"],
    "normalisation": ["void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<ck_tile::Rmsnorm2dFwdPipelineOnePass<float>>>"],
    "convolution": [
        "sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize32x32x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8_execute_kernel",
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x2x1_1x4x1x64_tb1x8x2x1_1x4x1x64_gkgs",
        "triton_tem_fused_convolution_4", "void vector_fft<(unsigned int)64, (unsigned int)4, float>",
    ],
    "gemm": [
        "Cijk_Ailk_Bjlk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_CMS_SN_LDSB0_AFC0_AFEM1_AFEM1_ASEM1_CLR1",
        "void ck_tile::kentry<1, ck_tile::GroupedGemmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner<float>>>",
        "triton_tem_fused_addmm_7", "ampere_sgemm_128x64_nn", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    ],
    "reduction": ["void ck_tile::kentry<2, ck_tile::MoeSortingMultiPhaseKernel_P23<ck_tile::MoeSortingProblemMp<int>>>"],
    "elementwise": ["SubTensorOpWithScalar1d", ELEMENTWISE.format("at::native::CUDAFunctor_add<float>")],
    "other": ["my_kernel(float *)", "Kernel2", "void ck_tile::kentry<(int)1, ck_tile::Unheard<float>>"],
}  # fmt: skip
CASES = [(name, expected) for expected, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("kernel", "expected"), CASES)
def test_real_names(kernel: str, expected: str) -> None:
    assert kernel_classes.classify(kernel) == expected


def test_every_class_has_a_name_and_every_rule_decides_one(found_in_public: list[dict[str, str]]) -> None:
    rules = kernel_classes.parse_rules(kernel_classes.read_rules_file())
    deciding = set()
    for name in [*(name for name, _ in CASES), *(row["kernel"] for row in found_in_public)]:
        path, arguments = function_path(name), template_arguments(name)
        number = next((place for place, rule in enumerate(rules) if rule.decides(path, arguments)), None)
        inner = [] if number is None else rules[number].arguments
        within = next((place for place, one in enumerate(inner) if one.expression.search(arguments)), None)
        deciding.add((number, within))
    known = {(number, place) for number, rule in enumerate(rules) for place in [None, *range(len(rule.arguments))]}
    assert deciding >= known


PRODUCT = "sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute"
LAYOUT = "void cudnn::ops::nchwToNhwcKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>"


@pytest.mark.parametrize(
    ("kernel", "operator", "expected"),
    [
        (PRODUCT, "aten::cudnn_convolution", "convolution"),
        (PRODUCT, "aten::_conv_depthwise2d", "convolution"),
        (PRODUCT, "aten::conv2d", "convolution"),
        (PRODUCT, "aten::addmm", "gemm"),
        (PRODUCT, "aten::_convert_weight_to_int4pack", "gemm"),
        (PRODUCT, "aten::_scaled_dot_product_efficient_attention", "attention"),
        (PRODUCT, "aten::_cudnn_rnn", "gemm"),
        ("RNN_unheard", "aten::_cudnn_rnn", "recurrent"),
        ("igemm_fwd_gtcx3_nhwc_fp16", "aten::mm", "gemm"),
        ("my_kernel", "aten::linear", "gemm"),
        ("my_kernel", "aten::native_layer_norm", "normalisation"),
        ("my_kernel", "aten::max_pool2d_with_indices", "pooling"),
        ("my_kernel", "aten::_softmax", "softmax"),
        ("my_kernel", "aten::embedding", "embedding"),
        ("my_kernel", "aten::_cudnn_attention_backward", "attention"),
        # What an operator launches besides is not of its class.
        (LAYOUT, "aten::cudnn_convolution", "copy"),
        ("void at::native::reduce_kernel<512, 1, at::ReduceOp<float>>", "aten::convolution_backward", "reduction"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "aten::mm", "communication"),
        (PRODUCT, "", "gemm"),
        ("triton_tem_fused_mm_3", "fused convolution", "gemm"),
    ],
)
def test_the_operator_decides_before_the_name(kernel: str, operator: str, expected: str) -> None:
    assert kernel_classes.classify_launched(kernel, operator) == expected


def test_a_kernel_of_several_operators_is_of_the_one_with_most_time() -> None:
    rows = [("k", "aten::mm", 30), ("k", "aten::cudnn_convolution", 20), ("k", "aten::cudnn_convolution", 20),
            ("k", "", 90), ("free", "", 5)]  # fmt: skip
    owned = pd.DataFrame(rows, columns=["name", "operator", "ns"])
    assert kernel_table.main_operators(owned) == {"k": "aten::cudnn_convolution"}
    found = kernel_classes.classify_all([PRODUCT, "free"], {PRODUCT: "aten::conv2d"})
    assert found == {PRODUCT: "convolution", "free": "other"}


def test_a_rule_about_operators_names_classes() -> None:
    rule = {"class": "gemm", "match": "x", "why": "y", "instead_of": ["gem"]}
    with pytest.raises(ConfigError, match="kernel class 'gem' of rule 'x': did you mean 'gemm'"):
        kernel_classes.parse_rules({"classes": {"gemm": ""}, "operators": [rule]}, "operators")


def test_kernels_of_a_recording(recording: Callable) -> None:
    table = nsys_tables.summarise(recording("nsys/train.sqlite"))
    shares = table["share"].groupby(table["kernel"].map(kernel_classes.classify)).sum()
    assert "other" not in shares and shares.sum() == pytest.approx(1)
    assert {"convolution", "gemm", "normalisation", "elementwise", "optimizer"} <= set(shares.index)
    assert shares["convolution"] + shares["gemm"] > 0.4 and shares["normalisation"] > 0.3


def test_ncus_and_nsyss_spelling_of_a_kernel_are_of_one_class(recording: Callable) -> None:
    pages = [ncu_tables.read_raw(recording(f"ncu/launch.raw.{name}.csv"))[0] for name in ("mangled", "demangled")]
    by_ncu = dict(zip(pages[0]["Kernel Name"], pages[1]["Kernel Name"], strict=True))
    table = nsys_tables.summarise(recording("nsys/train.sqlite"))
    by_nsys = dict(zip(table["mangled"], table["kernel"], strict=True))
    both = set(by_ncu) & set(by_nsys)
    spelt = [name for name in both if by_ncu[name] != by_nsys[name]]
    assert len(spelt) > 10
    assert all(kernel_classes.classify(by_ncu[name]) == kernel_classes.classify(by_nsys[name]) for name in both)
    assert "other" not in kernel_classes.classify_all(by_ncu.values()).values()


@pytest.fixture(scope="module")
def found_in_public() -> list[dict[str, str]]:
    """Names of kernels from public code and traces, each with the class of its operator and where it was found."""
    text = gzip.decompress((DATA / "names" / "classes.csv.gz").read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text)))


# The last step of one attention kernel, by whose name alone nobody can tell.
MISSED = {"reduce_segments"}


def test_names_found_in_public_are_of_their_operators_class(found_in_public: list[dict[str, str]]) -> None:
    assert len(found_in_public) == 307 and all(row["source"] for row in found_in_public)
    assert {row["class"] for row in found_in_public} == set(kernel_classes.read_rules_file()["classes"])
    wrong = {row["kernel"] for row in found_in_public if kernel_classes.classify(row["kernel"]) != row["class"]}
    assert wrong == MISSED


def test_parameters_never_count(found_in_public: list[dict[str, str]]) -> None:
    types = "at::PhiloxCudaState, cublasLtEpilogue_t, ncclComm *, cudnn::bn_args, embedding_t, softmax_params, roll *"
    for row in found_in_public:
        if row["kernel"].endswith(")") and not row["kernel"].startswith(("Mem", "[")):
            path, arguments = function_path(row["kernel"]), template_arguments(row["kernel"])
            other = f"void {path}<{arguments}>({types})" if arguments else f"void {path}({types})"
            assert kernel_classes.classify(other) == kernel_classes.classify(row["kernel"]), other


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        # Each was of another class by what stands in its signature.
        (ELEMENTWISE.replace("vectorized", "unrolled").format("at::native::CUDAFunctor_add<c10::Half>"), "elementwise"),
        ("void split_embedding_backward_codegen_adagrad_kernel_cta_per_row_1<float>(at::PhiloxCudaState)", "embedding"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)", "elementwise"),
        ("_convert_fp8_kernel", "elementwise"),
        # Mangled, whole and cut off.
        ("_ZN4vllm23rotary_embedding_kernelIfLb1EEEvPKlPT_", "elementwise"),
        ("_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS_1", "gemm"),
        ("_ZN7cutlass13device_kernelIN5flash11enable_sm90INS1_16FlashAttnFwdSm90INS1_", "attention"),
    ],
)
def test_the_function_decides_and_not_its_signature(kernel: str, expected: str) -> None:
    assert kernel_classes.classify(kernel) == expected


def test_a_rule_for_arguments_is_checked_as_others() -> None:
    rule = {"class": "gemm", "match": "x", "why": "y", "arguments": [{"class": "gem", "match": "z", "why": "y"}]}
    with pytest.raises(ConfigError, match="kernel class 'gem' of rule 'z': did you mean 'gemm'"):
        kernel_classes.parse_rules({"classes": {"gemm": ""}, "rules": [rule]})
    rule = {"class": "gemm", "match": "x", "why": "y", "argument": []}
    with pytest.raises(ConfigError, match="holds argument: did you mean 'arguments'"):
        kernel_classes.parse_rules({"classes": {"gemm": ""}, "rules": [rule]})


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ({"class": "gem", "match": "x", "why": "y"}, "kernel class 'gem' of rule 'x': did you mean 'gemm'?"),
        (
            {"class": "gemm", "match": "(", "why": "y"},
            "the rule '(' of kernel class 'gemm' is not a regular expression",
        ),
        ({"class": "gemm", "match": "x"}, "the rule 'x' of kernel class 'gemm' does not say why"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(rule: dict, line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}"):
        kernel_classes.parse_rules({"classes": {"gemm": "", "other": ""}, "rules": [rule]})
