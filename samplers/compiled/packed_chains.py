"""Numbers of 32 chains at a site: sums over its neighbours, and a word of bits.

A site's word has a bit for each chain. Its bits choose the lanes of a vector register to which the
weight of an edge is added. This is written in LLVM's vector types, which it turns into the
registers of any processor. A loop over the chains, as numba would compile it, is so short that
checks whether its arrays overlap take most of the time.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from latticework.samplers.compiled.jit import lean

MANY = 128  # neighbours of a site, which are added in single precision at most
LANES = 32  # chains, a bit each of a word
APART = 4  # sums at a time, which do not wait for each other
INDEX = ir.IntType(64)
VECTOR, BYTES, BITS = (
    ir.VectorType(kind, LANES) for kind in (ir.FloatType(), ir.IntType(8), ir.IntType(1))
)
ZERO, ANY = ir.Constant(VECTOR, None), ir.Constant(VECTOR, ir.Undefined)
FIRST = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)


@intrinsic
def add_neighbours(typing, fields, at, words, near, slope, start, stop, base):
    """Write the fields of a site, `base` + the slopes of neighbours at 1, to `fields` from `at` on.

    The neighbours are `near[k]` with `slope[k]` for start <= k < stop, and `words` those of sites.
    """
    signature = types.void(fields, at, words, near, slope, start, stop, base)

    def generate(context, builder, signature, arguments):
        fields, at, words, near, slope, start, stop, base = arguments
        kinds = signature.args
        out, states, sites, weights = (
            arrayobj.make_array(kinds[i])(context, builder, array).data
            for i, array in ((0, fields), (2, words), (3, near), (4, slope))
        )

        def load(pointer, index):
            return builder.load(builder.gep(pointer, [index]))

        def fill_lanes_with(value):
            first = builder.insert_element(ANY, value, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(first, ANY, FIRST)

        def add(k, total):
            word = load(states, builder.zext(load(sites, k), INDEX))
            before = builder.load(total)
            after = builder.fadd(before, fill_lanes_with(load(weights, k)))
            builder.store(builder.select(builder.bitcast(word, BITS), after, before), total)

        totals = [cgutils.alloca_once_value(builder, ZERO) for _ in range(APART)]
        builder.store(fill_lanes_with(base), totals[0])
        step, single = ir.Constant(INDEX, APART), ir.Constant(INDEX, 1)
        whole = builder.sub(stop, builder.urem(builder.sub(stop, start), step))
        with cgutils.for_range_slice(builder, start, whole, step, INDEX) as (k, _):
            for part, total in enumerate(totals):
                add(builder.add(k, ir.Constant(INDEX, part)), total)
        with cgutils.for_range_slice(builder, whole, stop, single, INDEX) as (k, _):
            add(k, totals[0])
        result = builder.load(totals[0])
        for total in totals[1:]:
            result = builder.fadd(result, builder.load(total))
        place = builder.bitcast(builder.gep(out, [at]), VECTOR.as_pointer())
        builder.store(result, place, align=4)
        return context.get_dummy_value()

    return signature, generate


@lean
def find_odds(fields, at, total, form, now, i):
    """Write the log-odds of site `i` to `fields` from `at` on. `total` `[LANES]` is room."""
    near, slope, offset = form.neighbours, form.slope, form.offset
    start, stop = form.starts[i], form.starts[i + np.uint64(1)]
    if stop - start <= MANY:
        add_neighbours(fields, at, now, near, slope, start, stop, np.float32(offset[i]))
        return
    total[:] = offset[i]
    for k in range(start, stop, MANY):
        end = min(k + MANY, stop)
        add_neighbours(fields, at, now, near, slope, k, end, np.float32(0))
        for c in range(LANES):
            total[c] += fields[at + c]
    for c in range(LANES):
        fields[at + c] = total[c]


@intrinsic
def pack(typing, values, at):
    """The word of 32 bytes from `at` on: a bit for each, 1 where the byte is not 0."""
    signature = types.uint32(values, at)

    def generate(context, builder, signature, arguments):
        values, at = arguments
        start = arrayobj.make_array(signature.args[0])(context, builder, values).data
        place = builder.bitcast(builder.gep(start, [at]), BYTES.as_pointer())
        chosen = builder.icmp_unsigned("!=", builder.load(place, align=1), ir.Constant(BYTES, None))
        return builder.bitcast(chosen, ir.IntType(LANES))

    return signature, generate
