"""kernel_classes: real kernels of every library end up where a reader would look for them."""

import csv
import gzip
import io
from collections.abc import Callable

import pytest

from profzoo.errors import ConfigError
from profzoo.kernels import kernel_classes
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
NAMES = {
    "communication": [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    ],
    "copy": [
        "[CUDA memcpy HtoD]", "[CUDA memset]", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, (bool)0, (bool)1, (cudnnKernelDataType_t)2>",
        "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false, (cudnnKernelDataType_t)0>",
        ELEMENTWISE.format("at::native::FillFunctor<float>"),
        STRIDED.format("at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"),
        "void at::native::<unnamed>::CatArrayBatchedCopy_aligned16_contig<at::native::<unnamed>::OpaqueType<(unsigned int)4>>",
        "void at::native::index_elementwise_kernel<(int)128, (int)4, void at::native::gpu_index_kernel>(long, T3)",
        "void at::native::<unnamed>::indexSelectLargeIndex<float, long, unsigned int, (int)2, (int)2, (int)-2, (bool)1>",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel>",
        "triton_poi_fused_clone_3", "triton_poi_fused__to_copy_transpose_12",
    ],
    "random": [
        "void at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int, (int)1, (int)4, bool>",
        "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4, at::native::uniform>",
    ],
    "optimizer": [
        "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)3>, "
        "at::native::<unnamed>::PointwiseOpScalarListFunctor<float, (int)3, (int)3, (int)0>>",
        "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::FusedOptimizerTensorListMetadata"
        "<(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4, (at::native::ADAM_MODE)0, (bool)0>>",
    ],
    "embedding": [
        "void at::native::<unnamed>::embedding_backward_feature_kernel<float, float, long>",
        "void at::native::<unnamed>::compute_grad_weight<float, long>", "at::native::<unnamed>::krn_partial_segment_offset",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128, (int)128, (int)4>>",
        "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 64, 128, 8>>",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80>::Params)",
        "void at::native::<unnamed>::transform_bias_rescale_qkv_kernel<float, float, (bool)1>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0", "triton_tem_fused_flex_attention_0",
    ],
    "recurrent": [
        "void RNN_blockPersist_fp_LSTM<float, float, float, (int)64>(PersistentRNNParams)",
        "void LSTM_elementWise_fp<float, float, float, (cudnnRNNBiasMode_t)2>(int, int, int, int, T1 const*)",
        "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int, int, int)",
        "void at::native::<unnamed>::kernel::lstm_cell_forward<float, float, int, (int)1>",
    ],
    "softmax": [
        "void <unnamed>::softmax_warp_forward<float, float, float, (int)4, (bool)1, (bool)0>(T2 *, const T1 *, int)",
        "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float, at::native::<unnamed>::LogSoftMaxForwardEpilogue>",
        "void cudnn::softmax_fw_channel_4d_kernel<float, float, 256, 1, 1, 0>", "triton_per_fused__softmax_2",
    ],
    "normalisation": [
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, (int)512, (bool)1, (int)1, (bool)1>",
        "void cudnn::bn_bw_1C11_singleread<float, (int)512, (bool)1, (int)1, (int)2, (int)0>",
        "void cudnn::batchnorm_bwtr_nhwc_semiPersist<float, float, float>",
        "void at::native::batch_norm_transform_input_kernel<float, float, float, (bool)1, int>",
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int, T2, const T1 *)",
        "void at::native::<unnamed>::GammaBetaBackwardCUDAKernelTemplate<float, float, (unsigned int)64>",
        "void at::native::<unnamed>::RowwiseMomentsCUDAKernel<float>", "triton_red_fused_native_layer_norm_1",
    ],
    "pooling": [
        "void at::native::<unnamed>::max_pool_forward_nchw<float, long>", "void at::native::max_pool_backward_nchw<float>",
        "void at::native::<unnamed>::adaptive_average_pool<float>", "void cudnn::pooling_fw_4d_kernel<float, float>",
        "void at::native::<unnamed>::upsample_bilinear2d_out_frame<float, float>",
        "void at::native::<unnamed>::atomic_adaptive_average_gradinput<float>(T1 *, const T1 *, int, int, int, int)",
    ],
    "convolution": [
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x32x8_stage3_warpsize2x2x1_g1_ffma",
        "sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_128x128_16x4_nhwc_align4>(T1::Params)",
        "void implicit_convolve_sgemm<float, float, (int)128, (int)5, (int)5, (int)3, (int)3, (int)3, (int)1>",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "void fft2d_r2c_32x32<float, false, 0u, false>",
        "void at::native::<unnamed>::conv_depthwise2d_forward_kernel<(int)3, float, int>", "void flip_filter<float, float>",
        "sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize32x32x8_stage3_warpsize2x2x1_ffma_aligna8_alignc8_execute_kernel",
        "void internal::region_transform_ABC_val<int, (int)32, (int)32, (bool)0, internal::TransformParamsABC<float2>>",
        "void vector_fft<(unsigned int)64, (unsigned int)4, float>", "void regular_fft_pad<(unsigned int)0, float>",
        "void wgrad_alg0_engine<float, (int)128, (int)5, (int)5, (int)3, (int)3, (int)3, (bool)0, (int)512>",
        "void at::native::im2col_kernel<float>", "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>",
        "void conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float>", "triton_tem_fused_convolution_4",
    ],
    "gemm": [
        "ampere_sgemm_128x64_nn", "volta_sgemm_64x32_sliced1x4_tn", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align1>(T1::Params)",
        "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, float, float, float, (bool)1, (bool)0, (bool)0>",
        "void gemv2T_kernel_val<int, int, float, float, float, float, (int)128, (int)16, (int)4, (int)4, (bool)0, (bool)0>",
        "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, float, float, float, float, (bool)0, (bool)1>",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensorStridedBatched<float>>>",
        "triton_tem_fused_addmm_7", "gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>",
    ],
    "reduction": [
        "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float>>>",
        "void at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(T1 *, T1 *, const T1 *)",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::DeviceRadixSortPolicy<float>>",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, (int)2, (bool)0>", "triton_red_fused_sum_3",
        "void at::native::bitonicSortKVInPlace<(int)-2, (int)-1, (int)16, (int)16, float, long>",
        "void at::native::tensor_kernel_scan_innermost_dim<long, std::plus<long>>",
    ],
    "elementwise": [
        ELEMENTWISE.format("at::native::CUDAFunctor_add<float>"),
        ELEMENTWISE.format("at::native::<unnamed>::launch_clamp_scalar(at::TensorIteratorBase &)::[lambda()]"),
        STRIDED.format("at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"),
        "void cudnn::ops::op_tensor_kernel<float>", "triton_poi_fused_add_relu_5",
        "void engines_precompiled::scalePackedTensor_kernel<float, float>(long, T1 *, T2)",
    ],
    "other": ["my_kernel(float *)", "Kernel2"],
}  # fmt: skip
CASES = [(name, expected) for expected, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("kernel", "expected"), CASES)
def test_real_names(kernel: str, expected: str) -> None:
    assert kernel_classes.classify(kernel) == expected


def test_every_class_has_a_name_and_every_rule_decides_one(found_in_public: list[dict[str, str]]) -> None:
    assert set(NAMES) == set(kernel_classes.read_rules_file()["classes"])
    rules = kernel_classes.parse_rules(kernel_classes.read_rules_file())
    deciding = set()
    for name in [*(name for name, _ in CASES), *(row["kernel"] for row in found_in_public)]:
        path, arguments = function_path(name), template_arguments(name)
        number = next((place for place, rule in enumerate(rules) if rule.decides(path, arguments)), None)
        inner = [] if number is None else rules[number].arguments
        deciding.add(
            (number, next((place for place, one in enumerate(inner) if one.expression.search(arguments)), None))
        )
    known = {(number, place) for number, rule in enumerate(rules) for place in [None, *range(len(rule.arguments))]}
    assert deciding >= known


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
    """Whatever types and arguments of other classes' libraries are among the parameters."""
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
        ({"class": "gemm", "match": "(", "why": "y"}, "the rule '(' of kernel class 'gemm' is no regular expression"),
        ({"class": "gemm", "match": "x"}, "the rule 'x' of kernel class 'gemm' does not say why"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(rule: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        kernel_classes.parse_rules({"classes": {"gemm": "", "other": ""}, "rules": [rule]})
    assert str(error.value).startswith(line)
