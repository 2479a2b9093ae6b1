"""Numbers of 32 chains at a site: sums over its neighbours, and a word of bits.

A site's word has a bit for each chain. Its bits choose the lanes of a vector register to which the
weight of an edge is added. This is written in LLVM's vector types, which it turns into the
registers of any processor. A loop over the chains, as numba would compile it, is so short that
checks whether its arrays overlap take most of the time. The sums of so many chains are found at
once as vector registers hold: more would go to memory and back for each neighbour.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from latticework.samplers.compiled.jit import lean

MAX_SINGLE_NEIGHBOURS = 128  # neighbours of a site, which are added in single precision at most
LANES = 32  # chains, a bit each of a word
SUMS_AT_ONCE = 4  # sums at a time, which do not wait for each other
INDEX = ir.IntType(64)
FLOAT, INT32 = ir.FloatType(), ir.IntType(32)
BYTES = ir.VectorType(ir.IntType(8), LANES)


def lanes_together(context: Any) -> int:
    """How many chains have their sums in vector registers, by the processor's."""
    features = context.codegen().magic_tuple()[2].split(",")
    if "+avx512f" in features:
        return LANES
    return LANES // 2 if "+avx" in features else LANES // 4


@intrinsic
def add_neighbours(typing, fields, at, words, near, slope, start, stop, base):
    """Write the fields of a site, `base` + the slopes of neighbours at 1, to `fields` from `at` on.

    The neighbours are `near[k]` with `slope[k]` for start <= k < stop, and `words` those of sites.
    """
    signature = types.void(fields, at, words, near, slope, start, stop, base)

    def generate(context, builder, signature, arguments):
        fields, at, words, near, slope, start, stop, base = arguments
        kinds, lanes = signature.args, lanes_together(context)
        floats, bits = ir.VectorType(FLOAT, lanes), ir.VectorType(ir.IntType(1), lanes)
        zero, undefined = ir.Constant(floats, None), ir.Constant(floats, ir.Undefined)
        out, states, sites, weights = (
            arrayobj.make_array(kinds[i])(context, builder, array).data
            for i, array in ((0, fields), (2, words), (3, near), (4, slope))
        )

        def load(pointer, index):
            return builder.load(builder.gep(pointer, [index]))

        def fill_lanes_with(value):
            first = builder.insert_element(undefined, value, ir.Constant(INT32, 0))
            places = ir.Constant(ir.VectorType(INT32, lanes), None)
            return builder.shuffle_vector(first, undefined, places)

        def add(k, total, lane):
            word = load(states, builder.zext(load(sites, k), INDEX))
            if lanes < LANES:
                word = builder.lshr(word, ir.Constant(word.type, lane))
                word = builder.trunc(word, ir.IntType(lanes))
            before = builder.load(total)
            after = builder.fadd(before, fill_lanes_with(load(weights, k)))
            builder.store(builder.select(builder.bitcast(word, bits), after, before), total)

        step, single = ir.Constant(INDEX, SUMS_AT_ONCE), ir.Constant(INDEX, 1)
        whole = builder.sub(stop, builder.urem(builder.sub(stop, start), step))
        totals = [cgutils.alloca_once(builder, floats) for _ in range(SUMS_AT_ONCE)]
        for lane in range(0, LANES, lanes):
            for total in totals:
                builder.store(zero, total)
            builder.store(fill_lanes_with(base), totals[0])
            with cgutils.for_range_slice(builder, start, whole, step, INDEX) as (k, _):
                for part, total in enumerate(totals):
                    add(builder.add(k, ir.Constant(INDEX, part)), total, lane)
            with cgutils.for_range_slice(builder, whole, stop, single, INDEX) as (k, _):
                add(k, totals[0], lane)
            result = builder.load(totals[0])
            for total in totals[1:]:
                result = builder.fadd(result, builder.load(total))
            first = builder.gep(out, [builder.add(at, ir.Constant(INDEX, lane))])
            builder.store(result, builder.bitcast(first, floats.as_pointer()), align=4)
        return context.get_dummy_value()

    return signature, generate


@lean
def find_odds(fields, at, total, form, now, i):
    """Write the log-odds of site `i` to `fields` from `at` on. `total` `[LANES]` is room."""
    near, slope, offset = form.neighbours, form.slope, form.offset
    start, stop = form.starts[i], form.starts[i + np.uint64(1)]
    if stop - start <= MAX_SINGLE_NEIGHBOURS:
        add_neighbours(fields, at, now, near, slope, start, stop, np.float32(offset[i]))
        return
    total[:] = offset[i]
    for k in range(start, stop, MAX_SINGLE_NEIGHBOURS):
        end = min(k + MAX_SINGLE_NEIGHBOURS, stop)
        add_neighbours(fields, at, now, near, slope, k, end, np.float32(0))
        for c in range(LANES):
            total[c] += fields[at + c]
    for c in range(LANES):
        fields[at + c] = total[c]


@intrinsic
def pack_word(typing, values, at):
    """The word of 32 bytes from `at` on: a bit for each, 1 where the byte is not 0."""
    signature = types.uint32(values, at)

    def generate(context, builder, signature, arguments):
        values, at = arguments
        start = arrayobj.make_array(signature.args[0])(context, builder, values).data
        place = builder.bitcast(builder.gep(start, [at]), BYTES.as_pointer())
        chosen = builder.icmp_unsigned("!=", builder.load(place, align=1), ir.Constant(BYTES, None))
        return builder.bitcast(chosen, ir.IntType(LANES))

    return signature, generate
