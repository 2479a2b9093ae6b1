"""Vectors of words as values in compiled kernels: eight words of 64 bits, four, or one.

The type is LLVM's <8 x i64>, which it turns into the registers of any processor. `&`, `|`, `^`, `~`
and `+` work on each of the words, so kernels are plain Python. Places in arrays are in bytes,
and arrays need not begin at a multiple of the vector's size, though loads are faster if they do.
Small lattices have vectors of fewer words, which are the first words of whole ones.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model
from numba.np import arrayobj
from numpy.typing import NDArray

from latticework.samplers.compiled.jit import kernel, lean

WORDS, BYTES = 8, 64  # a whole vector has so many
EIGHT = (0,) * WORDS  # stands for the width of a whole vector
INT8, INT32, INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
FLAGS = ir.VectorType(ir.IntType(1), 64)  # a word as 64 conditions
FLOATS, SMALL_BYTES = ir.VectorType(ir.FloatType(), 64), ir.VectorType(INT8, 64)


class Vector(types.Type):
    """numba's type of a vector of so many words. That of one word is an integer for LLVM."""

    def __init__(self, words: int) -> None:
        super().__init__(f"Vector({words})")
        self.words = words
        self.llvm = ir.VectorType(INT64, words) if words > 1 else INT64


VECTORS = {words: Vector(words) for words in (1, 4, WORDS)}
vector = VECTORS[WORDS]
LLVM_VECTOR = vector.llvm


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.llvm)


def _define_operator(symbol: Callable, emit: Callable, operands: int) -> None:
    class _Typing(ConcreteTemplate):
        cases = [signature(kind, *(kind,) * operands) for kind in VECTORS.values()]

    infer_global(symbol)(_Typing)
    for kind in VECTORS.values():
        lower_builtin(symbol, *(kind,) * operands)(
            lambda context, builder, sig, args: emit(builder, *args)
        )


_define_operator(operator.and_, ir.IRBuilder.and_, 2)
_define_operator(operator.or_, ir.IRBuilder.or_, 2)
_define_operator(operator.xor, ir.IRBuilder.xor, 2)
_define_operator(operator.add, ir.IRBuilder.add, 2)
_define_operator(operator.invert, ir.IRBuilder.not_, 1)


def as_wide_as(like: Any) -> Vector:
    """The type of vectors as wide as `like`: that of a vector, or of a tuple of an item a word."""
    return like if isinstance(like, Vector) else VECTORS[like.count]


def _fill(builder: Any, value: Any, kind: Any = LLVM_VECTOR) -> Any:
    """LLVM code for a vector of `kind` whose elements are all `value`."""
    if kind == INT64:
        return value
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(INT32, 0))
    places = ir.Constant(ir.VectorType(INT32, kind.count), None)
    return builder.shuffle_vector(first, undefined, places)


def _point(context: Any, builder: Any, kind: Any, array: Any, at: Any, to: Any) -> Any:
    """LLVM code for a pointer to a value of kind `to` at byte `at` of an array."""
    data = arrayobj.make_array(kind)(context, builder, array).data
    place = builder.gep(builder.bitcast(data, INT8.as_pointer()), [at])
    return builder.bitcast(place, to.as_pointer())


def _call(builder: Any, name: str, kind: Vector, *args: Any) -> Any:
    """LLVM code for its function `name` of vectors of `kind`."""
    suffix = "i64" if kind.words == 1 else f"v{kind.words}i64"
    function = ir.FunctionType(kind.llvm, [kind.llvm] * len(args))
    return builder.call(
        cgutils.get_or_insert_function(builder.module, function, f"{name}.{suffix}"), args
    )


@intrinsic
def load_like(typing, like, array, at):
    """The words of an array from byte `at` on, as a vector as wide as `like` (`as_wide_as`)."""
    kind = as_wide_as(like)

    def generate(context, builder, sig, args):
        return builder.load(_point(context, builder, sig.args[1], *args[1:], kind.llvm), align=1)

    return kind(like, array, types.intp), generate


@intrinsic
def repeat_like(typing, like, word):
    """A vector as wide as `like` whose words are all `word`."""
    kind = as_wide_as(like)

    def generate(context, builder, sig, args):
        return _fill(builder, args[1], kind.llvm)

    return kind(like, types.uint64), generate


@lean
def load_vector(array, at):
    """The 64 bytes of an array from byte `at` on."""
    return load_like(EIGHT, array, at)


@lean
def repeat_word(word):
    """A whole vector whose eight words are `word`."""
    return repeat_like(EIGHT, word)


@intrinsic
def store_vector(typing, array, at, x):
    """Write the words of a vector to an array from byte `at` on."""

    def generate(context, builder, sig, args):
        place = _point(context, builder, sig.args[0], *args[:2], x.llvm)
        builder.store(args[2], place, align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, x), generate


@intrinsic
def to_word(typing, x):
    """The first word of a vector."""

    def generate(context, builder, sig, args):
        return builder.extract_element(*args, ir.Constant(INT32, 0)) if x.words > 1 else args[0]

    return types.uint64(x), generate


@intrinsic
def join_shifted(typing, high, low, bits):
    """The 64 bits from number `bits` (below 64) on of each pair of words, the lower one first."""

    def generate(context, builder, sig, args):
        return _call(builder, "llvm.fshr", high, *args[:2], _fill(builder, args[2], high.llvm))

    return high(high, high, types.int64), generate


def _operate_by_number(emit: Callable, kind: Any) -> Callable:
    """An operation on each word of a vector and a number of `kind`."""

    @intrinsic
    def operate(typing, x, number):
        def generate(context, builder, sig, args):
            return emit(builder, args[0], _fill(builder, args[1], x.llvm))

        return x(x, kind), generate

    return operate


shift_up = _operate_by_number(ir.IRBuilder.shl, types.int64)  # to the higher bits
shift_down = _operate_by_number(ir.IRBuilder.lshr, types.int64)  # to the lower bits
multiply_words = _operate_by_number(ir.IRBuilder.mul, types.uint64)  # modulo 2^64


@intrinsic
def count_bits(typing, x):
    """The number of bits at 1 in each word."""

    def generate(context, builder, sig, args):
        return _call(builder, "llvm.ctpop", x, *args)

    return x(x), generate


@intrinsic
def has_bits(typing, x):
    """Whether any bit is 1."""

    def generate(context, builder, sig, args):
        kind = ir.IntType(64 * x.words)
        whole = builder.bitcast(args[0], kind)
        return builder.icmp_unsigned("!=", whole, ir.Constant(kind, 0))

    return types.boolean(x), generate


@intrinsic
def gather_words(typing, words, places, at):
    """The eight words whose numbers are those of `places` from number `at` on."""

    def generate(context, builder, sig, args):
        data = arrayobj.make_array(sig.args[0])(context, builder, args[0]).data
        index = arrayobj.make_array(sig.args[1])(context, builder, args[1]).data
        result = ir.Constant(LLVM_VECTOR, ir.Undefined)
        for k in range(WORDS):
            number = builder.load(builder.gep(index, [builder.add(args[2], ir.Constant(INT64, k))]))
            word = builder.load(builder.gep(data, [builder.zext(number, INT64)]))
            result = builder.insert_element(result, word, ir.Constant(INT32, k))
        return result

    return vector(words, places, types.intp), generate


@intrinsic
def pack_floats(typing, array, at):
    """A word with a bit for each of the 64 floats from byte `at` on: 1 where it is not 0."""

    def generate(context, builder, sig, args):
        place = _point(context, builder, sig.args[0], *args, FLOATS)
        zero = ir.Constant(FLOATS, None)
        flags = builder.fcmp_unordered("!=", builder.load(place, align=4), zero)
        return builder.bitcast(flags, INT64)

    return types.uint64(array, types.intp), generate


@intrinsic
def unpack_word(typing, array, at, word):
    """Write the 64 bits of a word as 64 floats or bytes, from byte `at` on."""
    is_float = array.dtype == types.float32
    kind, align = (FLOATS, 4) if is_float else (SMALL_BYTES, 1)

    def generate(context, builder, sig, args):
        place = _point(context, builder, sig.args[0], *args[:2], kind)
        flags = builder.bitcast(args[2], FLAGS)
        values = builder.uitofp(flags, kind) if is_float else builder.zext(flags, kind)
        builder.store(values, place, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), generate


@intrinsic
def add_where(typing, array, at, word, value):
    """Add `value` to those of the 64 floats from byte `at` on whose bit of `word` is 1."""

    def generate(context, builder, sig, args):
        place = _point(context, builder, sig.args[0], *args[:2], FLOATS)
        flags, zero = builder.bitcast(args[2], FLAGS), ir.Constant(FLOATS, None)
        step = builder.select(flags, _fill(builder, args[3], FLOATS), zero)
        builder.store(builder.fadd(builder.load(place, align=4), step), place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64, types.float32), generate


def copy_aligned(array: NDArray[Any]) -> NDArray[Any]:
    """A copy whose memory begins at a multiple of 64 bytes: loads that cross lines are slower."""
    array = np.ascontiguousarray(array)
    room = np.empty(array.nbytes + BYTES, np.uint8)
    first = -room.ctypes.data % BYTES
    copy = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@kernel
def make_aligned(words):
    """An array of so many words, all 0, whose memory begins at a multiple of 64 bytes."""
    room = np.zeros(words + WORDS, np.uint64)
    first = -(room.ctypes.data // 8) % WORDS
    return room[first : first + words]
