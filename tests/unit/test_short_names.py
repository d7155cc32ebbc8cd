"""Short names of kernels: what they tell, and that no two kernels of a cell have the same."""

import pandas as pd
import pytest

from profzoo.kernels.short_names import LONGEST, shorten_names
from tests.conftest import DATA

NAMES = pd.read_csv(DATA / "names/kernels.csv.gz")


@pytest.mark.parametrize("cell", NAMES["cell"].unique())
def test_names_of_a_cell_are_distinct_and_short(cell: str) -> None:
    """As ncu and nsys print them, on an H100 and an H200."""
    kernels = NAMES.loc[NAMES["cell"] == cell, "kernel"].tolist()
    names = shorten_names(kernels)
    assert list(names) == kernels and len(set(names.values())) == len(kernels)
    assert all(name and len(name) <= LONGEST for name in names.values())
    # None has to be told by a number.
    assert not any("#" in name for name in names.values())


def test_names_of_the_whole_zoo_are_distinct() -> None:
    names = shorten_names(NAMES["kernel"].tolist())
    assert len(set(names.values())) == NAMES["kernel"].nunique()


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
        ("aten::addmm", "aten::addmm"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_name_tells_what_the_kernel_does(kernel: str, name: str) -> None:
    assert shorten_names([kernel]) == {kernel: name}


def test_kernels_that_nothing_tells_apart_are_numbered() -> None:
    alike = [f"{'x' * 60}{letter}" for letter in "bca"]
    names = shorten_names([*alike, alike[0]])
    assert [names[one][-2:] for one in alike] == ["#2", "#3", "#1"]
    assert len(set(names.values())) == 3 and all(len(name) <= LONGEST for name in names.values())
