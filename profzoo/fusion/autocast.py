"""Says what autocast to bf16 changes of each call of a traced step: the bytes that it moves, and casts besides it.

Types follow from what made a tensor (calls.py). Where that is unknown, they follow from the last call that may have
made it. What nothing has made is a weight or the step's input, and in fp32. A backward pass works in the types of its
forward pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from profzoo.fusion.calls import LINEAR, NONE, SUMS, Call, Flow
from profzoo.fusion.chains import BACKWARD
from profzoo.op_costs.tensor_effects import ATEN, COPY, FILL, GATHER, POINTWISE, PRODUCT, SCATTER, Tensor
from profzoo.range_names import FORWARD

# What autocast does with the inputs of an operator on CUDA: cast them to the narrow type, or to fp32; ask for a result
# in fp32; cast them to the widest type among them. All other operators work in the types that they are given.
NARROW, WIDE, WIDE_RESULT, WIDEST, GIVEN = "narrow", "wide", "wide result", "widest", "given"
# By torch 2.11's macros AT_FORALL_* in ATen/autocast_mode.h, and what it registers for cuDNN besides.
OPERATORS: Mapping[str, str] = {
    NARROW: "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution "
    "prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot "
    "_thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "_scaled_dot_product_flash_attention scaled_dot_product_attention cudnn_convolution cudnn_convolution_transpose "
    "_cudnn_rnn",
    WIDE: "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm "
    "native_layer_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss cosine_embedding_loss "
    "nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss "
    "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits "
    "dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d "
    "_upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
    "_upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa",
    WIDE_RESULT: "prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum norm",
    WIDEST: "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add",
}
POLICIES = {f"{ATEN}{name}": policy for policy, names in OPERATORS.items() for name in names.split()}
# Of those with a result in fp32, the ones that cast a bf16 input before they work; the others read it as it is.
CAST_FIRST = frozenset(f"{ATEN}{name}" for name in ("softmax", "log_softmax", "cumprod", "cumsum"))
CROSS_ENTROPY, LOG_SOFTMAX = f"{ATEN}cross_entropy_loss", f"{ATEN}log_softmax"
# Directions of calls that run with autocast on.
ACTIVE = (*FORWARD, "recompute", "loss")
FP32 = "float"
# A cast reads or writes 4 bytes of an element in fp32, and 2 of one in bf16.
CAST_BYTES = 6
# So many calls are looked at for the maker of a slice, or of a result whose shape the trace does not tell.
NEAR = 40
# Calls around a copy that makes a tensor of the type of another one.
COPYING = frozenset(f"{ATEN}{name}" for name in ("clone", "contiguous", "reshape", "_to_copy", "to"))


@dataclass(frozen=True)
class Narrowed:
    """A call under autocast: bytes that it moves, and number and bytes of the casts before it or of its gradients."""

    bytes: float
    casts: int = 0
    cast_bytes: float = 0.0


def join_names(policy: str) -> str:
    """Return the names of the operators that autocast treats in one way, as alternatives of a regular expression."""
    return "|".join(OPERATORS[policy].split())


def find_policy(call: Call) -> str:
    """Return what autocast does with the inputs of a call: by the outermost operator that it treats."""
    around = (*call.around, f"{ATEN}{call.operator}")
    # Cross-entropy asks for a log-softmax in the type of its scores, which autocast leaves at that.
    treated = [name for name in around if name in POLICIES and not (name == LOG_SOFTMAX and CROSS_ENTROPY in around)]
    return POLICIES[treated[0]] if treated else GIVEN


def narrow_calls(flow: Flow) -> list[Narrowed]:
    """Return what autocast to bf16 changes of each call of a step in fp32.

    The gradient of a cast is cast back before the first call that autograd runs for the operator.
    """
    types, found = _Types(flow), list[Narrowed]()
    for call in flow.calls:
        if call.direction == BACKWARD:
            narrow = types.follow(call)
            found.append(_narrowed(call, [narrow] * len(call.reads), narrow, types.owed.pop(call.sequence, ())))
        else:
            found.append(_narrowed(call, *types.run(call)))
    return found


def _narrowed(call: Call, reads: Sequence[bool], narrow: bool, casts: Sequence[Tensor]) -> Narrowed:
    """Return a call of which these reads, or what it writes, are narrow; casts: tensors that change their type."""
    pairs = [*zip(call.reads, reads, strict=True), *((tensor, narrow) for tensor in call.writes)]
    # Atomic operations take as long in either type.
    halved = [small and one.kind == FP32 and call.kind != SCATTER for one, small in pairs]
    moved = sum(one.bytes // (1 + small) for (one, _), small in zip(pairs, halved, strict=True))
    return Narrowed(float(moved), len(casts), float(CAST_BYTES * sum(tensor.elements for tensor in casts)))


class _Types:
    """Types of what the calls of a step make, as far as it has come.

    Attributes:
        forward: places of the last call of the forward pass with each of autograd's numbers.
        owed: by this number, tensors whose gradients have to be cast.
    """

    def __init__(self, flow: Flow) -> None:
        self.forward: dict[int, int] = {}
        self.owed: dict[int, tuple[Tensor, ...]] = {}
        self._flow = flow
        # By place: whether what the call makes is narrow, what made its inputs, and whether it may still be read.
        self._narrow: list[bool] = []
        self._makers: list[list[int]] = []
        self._left: list[int] = []
        self._trained = any(call.direction == BACKWARD for call in flow.calls)
        # Sizes of tensors that were read before anything had made one.
        self._leaves: set[int] = set()

    def run(self, call: Call) -> tuple[list[bool], bool, tuple[Tensor, ...]]:
        """Return which of a call's reads are narrow, whether its result is, and what is cast before it."""
        makers = list[int]()
        for place in range(len(call.reads)):
            makers.append(self._maker(call, place, makers))
        given = [self._is_narrow(maker) for maker in makers]
        policy, floats = find_policy(call), [one.kind == FP32 for one in call.reads]
        casts, behind = list[Tensor](), list[Tensor]()
        reads, narrow = given, False
        if call.direction not in ACTIVE or call.updates:
            reads = [False] * len(given)
        elif policy == NARROW:
            reads, narrow = floats, True
            own = _own_input(call)
            for place, tensor in enumerate(call.reads):
                leaf = makers[place] == NONE
                # Casts of weights are kept until autocast ends; the step's input has no gradient.
                if floats[place] and not given[place] and not (leaf and place != own and call.instance > 0):
                    casts.append(tensor)
                    behind += [] if leaf and place == own else [tensor]
        elif policy == WIDE or (policy == WIDE_RESULT and CAST_FIRST & {*call.around, f"{ATEN}{call.operator}"}):
            casts = behind = [one for one, small in zip(call.reads, given, strict=True) if small]
            reads = [False] * len(given)
        elif policy != WIDE_RESULT:
            reads, narrow, mixed = self._given(call, given, policy)
            # Autograd brings the gradients of narrow inputs into their type, also where no call computes them.
            casts = mixed if policy == WIDEST or (self._trained and call.sequence >= 0) else []
            behind = mixed if policy == WIDEST else []
        self._add(call, makers, narrow)
        if call.sequence >= 0 and behind:
            self.owed[call.sequence] = (*self.owed.get(call.sequence, ()), *behind)
        return reads, narrow, tuple(casts)

    def _given(self, call: Call, given: list[bool], policy: str) -> tuple[list[bool], bool, list[Tensor]]:
        """Return the same of a call that works in the types of its inputs, and the narrow ones among wide ones.

        A kernel that reads several types converts them as it reads, which takes as long as reading fp32.
        """
        if call.kind == FILL:
            like = any("_like" in name for name in call.around)
            return given, like and self._is_narrow(self._latest(call.writes)), []
        if call.operator == "copy_":
            return given, given[:1] == [True] and bool(COPYING & {*call.around}), []
        pairs = [pair for pair in zip(call.reads, given, strict=True) if pair[0].kind == FP32 and pair[0].shape]
        small = [one for one, is_small in pairs if is_small]
        if policy == WIDEST or call.kind in (POINTWISE, COPY):
            if small and len(small) < len(pairs):
                return [False] * len(given), call.operator.endswith("_") and given[0], small
            narrow = bool(small)
        else:
            narrow = given[:1] == [True]
        return given, narrow, []

    def follow(self, call: Call) -> bool:
        """Return whether a call of the backward pass is narrow: as the operator that it is the gradient of."""
        place = NONE if call.operator in SUMS and not call.around else self.forward.get(call.sequence, NONE)
        if place == NONE:
            narrow = self._is_narrow(self._latest(call.reads or call.writes))
        else:
            policy = find_policy(self._flow.calls[place])
            narrow = policy == NARROW or (policy not in (WIDE, WIDE_RESULT) and self._narrow[place])
        self._add(call, [NONE] * len(call.reads), narrow)
        return narrow

    def _add(self, call: Call, makers: list[int], narrow: bool) -> None:
        self._makers.append(makers)
        self._narrow.append(narrow)
        self._left.append(sum(one.elements for one in call.writes[:1]) or 1)
        if call.direction != BACKWARD and call.sequence >= 0:
            self.forward[call.sequence] = call.place

    def _is_narrow(self, place: int) -> bool:
        return place != NONE and self._narrow[place]

    def _latest(self, like: Sequence[Tensor], but: Sequence[int] = ()) -> int:
        """Return the place of the last call that has made a tensor as large as the first of these; NONE without one."""
        for place in range(len(self._narrow) - 1, max(len(self._narrow) - NEAR, 0) - 1, -1):
            made = self._flow.calls[place].writes
            if like and place not in but and any(one.elements == like[0].elements and one.kind == FP32 for one in made):
                return place
        return NONE

    def _maker(self, call: Call, at: int, others: Sequence[int]) -> int:
        """Return the place of what made a tensor that a call of the forward pass reads; NONE if nothing has.

        others: of the tensors that the call reads before this one.
        """
        tensor, maker = call.reads[at], self._flow.makers[call.place][at]
        if tensor.kind != FP32 or tensor.elements <= 1:
            return NONE
        product = LINEAR in call.around and call.kind == PRODUCT
        if product and at == len(call.reads) - 1:
            return maker
        maker = self._unread(call, tensor, maker)
        if maker == NONE and call.operator in SUMS and tensor.elements not in self._leaves:
            maker = self._latest([tensor], but=others)
        if maker == NONE:
            self._leaves.add(tensor.elements)
            return NONE
        if product and (source := self._sibling(call, maker, tensor)) != NONE:
            return source
        self._left[maker] -= tensor.elements
        return maker

    def _unread(self, call: Call, tensor: Tensor, maker: int) -> int:
        """Return what is more likely to have made a tensor than `maker`: a later call that nobody has read."""
        sliced = tensor.part or call.kind == COPY or call.operator in ("bmm", "baddbmm") or "attention" in call.operator
        for place in range(call.place - 1, max(maker, call.place - NEAR, -1), -1):
            one = self._flow.calls[place]
            if one.direction == BACKWARD or not one.reads:
                continue
            made = one.writes[0] if one.writes else None
            fits = _may_be_of(tensor, one) if made is None else _fits(tensor, made, sliced)
            if fits and (self._left[place] > 0 or (maker == NONE and tensor.part)):
                return place
        return maker

    def _sibling(self, call: Call, maker: int, tensor: Tensor) -> int:
        """Return what made the input of another linear layer, if that seems to be the input of this one too.

        Of linear layers in a row with nothing between them, each reads what the first one does.
        """
        other = self._flow.calls[maker]
        if LINEAR not in other.around or other.kind != PRODUCT or other.module == call.module:
            return NONE
        own = _own_input(other)
        return self._makers[maker][own] if other.reads[own].elements == tensor.elements else NONE


def _own_input(call: Call) -> int:
    """Return which of its reads is not a weight of a product or convolution."""
    return max(len(call.reads) - 2, 0) if call.kind == PRODUCT else 0


def _fits(tensor: Tensor, made: Tensor, sliced: bool) -> bool:
    """Return whether a tensor may be what a call has made, or a slice of it."""
    size = made.elements if made.kind == tensor.kind else 0
    return size == tensor.elements or (sliced and size > tensor.elements and size % tensor.elements == 0)


def _may_be_of(tensor: Tensor, call: Call) -> bool:
    """Return whether a tensor may be what a call has made of its first input, where a trace does not tell that.

    Rows that were picked are as long as before; other operators keep the first dimensions, such as the batch.
    """
    read = call.reads[0]
    if call.kind == GATHER:
        return len(tensor.shape) > 1 and tensor.shape[1:] == read.shape[1:]
    first = len(tensor.shape) > 1 and tensor.shape[0] in accumulate(read.shape, mul)
    return first or tensor.elements == read.elements
