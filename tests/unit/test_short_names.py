"""Short names of kernels: what each word tells, and that no two kernels of a cell have the same."""

import pandas as pd
import pytest

from profzoo.kernels.short_names import LONGEST, shorten_names
from tests.conftest import DATA

NAMES = pd.read_csv(DATA / "names/kernels.csv.gz")


def test_names_of_a_cell_are_distinct_and_short() -> None:
    """As ncu and nsys print them, on an H100 and an H200."""
    for _, mine in NAMES.groupby("cell"):
        kernels = mine["kernel"].tolist()
        names = shorten_names(kernels)
        assert list(names) == kernels and len(set(names.values())) == len(kernels)
        # None has to be told by a number.
        assert all(name and len(name) <= LONGEST and "#" not in name for name in names.values())
    every = shorten_names(NAMES["kernel"].tolist())
    assert len(set(every.values())) == NAMES["kernel"].nunique()


ELEMENTS = "void at::native::{}<4, {}, std::array<char*, 3ul>>(int)"


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(T1::Params)",
         "cutlass s1688gemm 64x64 nn"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x64x64_stage4_warpsize2x2x1_tensor16x8x8_aligna4_alignc4_"
         "execute_split_k_kernel__5x_cublas", "gemm tf32 32x64 nn split-k"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize32x32x8_stage3_warpsize1x2x1_g1"
         "_ffma_execute_kernel__5x_cudnn", "wgrad f32 32x32 nhwc"),
        ("void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::hardtanh_backward_kernel("
         "at::TensorIterator &, const c10::Scalar &)::[lambda() (instance 1)]::operator ()() const::[lambda(float, "
         "float) (instance 1)], std::array<char *, (unsigned long)3>>(int, T2, T3)",
         "elementwise hardtanh_backward f32"),
        ("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add"
         "<c10::BFloat16> >(at::TensorIteratorBase&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast)",
         "elementwise strided add bf16"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
         "TensorListMetadata<2>, at::native::(anonymous namespace)::TernaryOpScalarFunctor<float, 2, 2, 0>, "
         "at::native::LerpFunctor<float>, float>(T1)", "foreach lerp"),
        ("triton_poi_fused_add_relu_3", "triton_poi_fused_add_relu_3"),
        ("", ""),
        # The type of what is multiplied, not of results and accumulators.
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
         "gemm bf16 128x64 tn"),
        ("ampere_sgemm_32x128_tn", "sgemm 32x128 tn"),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_nn", "s16816gemm 64x64 nn"),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "gemm 64x8"),
        ("cutlass_thing", "cutlass"),
        ("sm80_thing", "sm80_thing"),
        # A functor that only wraps another says nothing.
        (ELEMENTS.format("vectorized_elementwise_kernel", "at::native::BinaryFunctor<float, float, float, "
                         "at::native::binary_internal::MulFunctor<float>>"), "elementwise mul f32"),
        (ELEMENTS.format("vectorized_elementwise_kernel", "at::native::CUDAFunctorOnSelf_add<c10::Half>"),
         "elementwise add f16"),
        (ELEMENTS.format("unrolled_elementwise_kernel", "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
                         "{lambda()#3}::operator()() const::{lambda(long)#1}"), "elementwise unrolled copy i64"),
        # The first that says what is done, not what is within it.
        (ELEMENTS.format("vectorized_elementwise_kernel", "at::native::gelu_kernel_impl(at::TensorIteratorBase&)::"
                         "tanh_functor<float>"), "elementwise gelu f32"),
        # Of elements and masks the type of the elements.
        (ELEMENTS.format("vectorized_elementwise_kernel", "at::native::where_kernel_impl(at::TensorIterator&)::"
                         "{lambda(bool, double, double)#1}"), "elementwise where f64"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::func_wrapper_t<double, "
         "at::native::sum_functor<double, double, double>>>>(T1)", "reduce sum f64"),
        ("void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, at::native::BinaryOpScalarFunctor"
         "<float, 2, 1, 1>, std::multiplies<float>, float>(T1)", "foreach mul"),
        ("void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<3>, at::native::PointwiseOp"
         "ScalarFunctor<float, 4, 3, 3>, std::divides<float>, float>(T1)", "foreach addcdiv"),
        ("void softmax_warp_forward_kernel<float>(float*)", "softmax_warp_forward"),
    ],
)  # fmt: skip
def test_a_name_tells_what_the_kernel_does(kernel: str, name: str) -> None:
    assert shorten_names([kernel]) == {kernel: name}


def test_a_namespace_without_a_name_tells_no_kernels_apart() -> None:
    alike = ["void at::native::{}wgrad_kernel<float>(T1 *)", "void cudnn::{}wgrad_kernel<float>(T1 *)",
             "void wgrad_kernel<float>(T1 *)"]  # fmt: skip
    names = shorten_names([kernel.format(form) for kernel, form in zip(alike, ("<unnamed>::", "", ""), strict=True)])
    assert list(names.values()) == ["wgrad at", "wgrad cudnn", "wgrad"]
    same = shorten_names([alike[0].format(form) for form in ("<unnamed>::", "(anonymous namespace)::")])
    assert sorted(same.values()) == ["wgrad #1", "wgrad #2"]


def test_kernels_that_nothing_tells_apart_are_numbered() -> None:
    alike = [f"{'x' * 60}{letter}" for letter in "bca"]
    names = shorten_names([*alike, alike[0]])
    assert [names[one][-2:] for one in alike] == ["#2", "#3", "#1"]
    assert len(set(names.values())) == 3 and all(len(name) <= LONGEST for name in names.values())


def test_a_long_name_is_cut_where_it_is_full() -> None:
    assert [*shorten_names(["x" * 60]).values()] == ["x" * 48] == [*shorten_names(["x" * 48]).values()]


def test_kernels_of_one_short_name_are_told_by_what_differs() -> None:
    """One word where that is enough, as many as it takes otherwise, and numbers in the order of their names."""
    assert list(shorten_names(["f<a, b>()", "f<a, c>()"]).values()) == ["f b", "f c"]
    three = ["f<p, q, u>()", "f<p, r, v>()", "f<s, q, w>()"]
    assert list(shorten_names(three).values()) == ["f p q", "f p r", "f s q"]
    # A word that is too long tells none of them apart.
    assert list(shorten_names(["f<b>()", f"f<{'a' * 50}>()"]).values()) == ["f #2", "f #1"]
    assert list(shorten_names(["f<2>()", "f<2, 2>()", "g()"]).values()) == ["f #2", "f #1", "g"]
