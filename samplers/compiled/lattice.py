"""What kernels on lattices share: states as bytes, neighbour counts, and classes of sites.

The class of a site is its kind (`LatticeForm.kind`), its value and the number of its neighbours at
1, in this order. All that a step needs to know of a site depends on its class only.
"""

import numpy as np

from latticework.samplers.compiled.jit import kernel, reordered


@kernel
def count_ones(x, ones, sides, periodic):
    """The number of neighbours at 1 of each site, by shifts along each axis."""
    sites = x.shape[0]
    ones[:] = 0
    stride = 1
    for axis in range(sides.shape[0] - 1, -1, -1):
        size = sides[axis]
        block = size * stride
        if size > 1:
            # Shift the whole array, and undo it where it crosses from one block to the next.
            for i in range(stride, sites):
                ones[i] += x[i - stride]
            for i in range(sites - stride):
                ones[i] += x[i + stride]
            for start in range(0, sites, block):
                end = start + block
                for i in range(stride):
                    low, high = start + i, end - stride + i
                    if start > 0:
                        ones[low] -= x[low - stride]
                    if end < sites:
                        ones[high] -= x[high + stride]
                    if periodic and size > 2:
                        ones[low] += x[high]
                        ones[high] += x[low]
        stride = block


@kernel
def classify(classes, first, ones, x, counts):
    """The class of each site; there are `counts` possible numbers of neighbours at 1."""
    for i in range(x.shape[0]):
        classes[i] = first[i] + np.int32(x[i]) * counts + np.int32(ones[i])


@kernel
def look_up(out, table, index):
    for i in range(out.shape[0]):
        out[i] = table[np.uint32(index[i])]


@reordered
def table_sum(table, index):
    total = 0.0
    for i in range(index.shape[0]):
        total += table[np.uint32(index[i])]
    return total


@kernel
def add_bytes(total, x):
    for i in range(x.shape[0]):
        total[i] += np.float32(x[i])


@kernel
def copy_bytes(out, x):
    for i in range(x.shape[0]):
        out[i] = np.int8(x[i])
