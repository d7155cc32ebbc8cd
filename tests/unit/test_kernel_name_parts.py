"""Short names of kernels: which part of a name each word is, as read off the full name."""

import pytest

from profzoo.kernels.short_names import LONGEST, shorten_names

ELEMENTS = "void at::native::{}<4, {}, std::array<char*, 3ul>>(int)"


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        # The type of what is multiplied, not of results and accumulators.
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
         "gemm bf16 128x64 tn"),
        ("sm80_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize64x32x16_stage4", "gemm f64 64x32 nt"),
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
        ("aten::add_kernel", "aten::add_kernel"),
    ],
)  # fmt: skip
def test_a_word_for_each_part_of_the_name(kernel: str, name: str) -> None:
    assert shorten_names([kernel]) == {kernel: name}


def test_a_long_name_is_cut_where_it_is_full() -> None:
    assert LONGEST == 48
    assert shorten_names(["x" * 60]) == {"x" * 60: "x" * 48} and shorten_names(["x" * 48]) == {"x" * 48: "x" * 48}


def test_kernels_of_one_short_name_are_told_by_what_differs() -> None:
    """One word where that is enough, as many as it takes otherwise, and numbers in the order of their names."""
    assert list(shorten_names(["f<a, b>()", "f<a, c>()"]).values()) == ["f b", "f c"]
    three = ["f<p, q, u>()", "f<p, r, v>()", "f<s, q, w>()"]
    assert list(shorten_names(three).values()) == ["f p q", "f p r", "f s q"]
    # A word that is too long tells none of them apart.
    assert list(shorten_names(["f<b>()", f"f<{'a' * 50}>()"]).values()) == ["f #2", "f #1"]
    assert list(shorten_names(["f<2>()", "f<2, 2>()", "g()"]).values()) == ["f #2", "f #1", "g"]
