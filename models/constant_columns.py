"""Products of a tall matrix, many of whose columns hold one value in most rows.

Examples are one-hot categories and counts of rare words, also when standardised: 77 of Adult's
88 and 224 of Blog Feedback's 276. Let u_c be the usual value of column c, and e_rc the deviation of
row r from it. Then

    sum_c x_rc w_c = sum_c u_c w_c + sum_c e_rc w_c.

The first sum is the same for all rows. The second has a term for each deviation: on average 2.4 in
a row of Adult, 8.6 in a row of Blog Feedback. The other columns stay a matrix.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from latticework.models.matmul import onednn, use_onednn

# The largest share of rows that deviate; one costs a CPU 2 to 5 times as much as a matrix entry.
MAX_DEVIATION_SHARE = 0.25
MIN_CONSTANT_COLUMNS = 32  # adding up deviations costs a pass over the sums (14 gain nothing)


class Bags(NamedTuple):
    """Weighted sums of a table's rows; bag i sums `rows[offsets[i]:offsets[i + 1]]`."""

    rows: Tensor
    offsets: Tensor
    weights: Tensor

    def of(self, table: Tensor, weights: Tensor | None = None) -> Tensor:
        """The sums, `[bags, n]`, of rows of `table` `[.., n]`."""
        return embedding_bag(
            self.rows,
            table,
            self.offsets,
            mode="sum",
            per_sample_weights=self.weights if weights is None else weights,
            include_last_offset=True,
        )


class Columns:
    """The matrix `inputs` `[rows, columns]`, its last column ones, in `parts` of its rows.

    With `split`, columns with few deviations are stored as deviations, for one chain at a time.
    """

    def __init__(self, inputs: Tensor, parts: list[slice], split: bool) -> None:
        self.across = inputs.T.contiguous()  # [columns, rows], each column's numbers side by side
        self.inputs, self.transposed = inputs, self.across
        mask = few_deviations(inputs) if split else None
        self.few = None if mask is None else indices(mask)
        if mask is not None:
            self.others = indices(~mask)
            self.inputs, rare = inputs[:, self.others], inputs[:, self.few]
            self.transposed = self.across[self.others]
            self.usual = rare.median(0).values
            row, column = (rare != self.usual).nonzero(as_tuple=True)
            value = (rare - self.usual)[row, column]
            self.bags = {part.start: self._bags(row, column, value, part) for part in parts}

    def _bags(self, row: Tensor, column: Tensor, value: Tensor, part: slice) -> tuple[Bags, Bags]:
        """The deviations of one part: a bag of columns for each row, of rows for each column."""
        here = (row >= part.start) & (row < part.stop)
        row, column, value = row[here] - part.start, column[here], value[here]
        order = column.argsort(stable=True)
        return (
            Bags(column, offsets(row, len(self.inputs[part])), value),
            Bags(row[order], offsets(column[order], len(self.usual)), value[order]),
        )

    def weights(self, full: Tensor) -> tuple[Tensor, Tensor]:
        """`full` `[chains, columns, n]` split in weights of the matrix and of the deviations."""
        if self.few is None:
            return full, full[:, :0]
        whole, few = full.index_select(1, self.others), full.index_select(1, self.few)
        whole[:, -1] += self.usual @ few
        return whole, few

    def full(self, whole: Tensor, few: Tensor) -> Tensor:
        """The transpose of `weights`: derivatives by all columns from those by both parts."""
        if self.few is None:
            return whole
        result = whole.new_empty(len(whole), len(self.others) + len(self.few), whole.shape[2])
        result.index_copy_(1, self.others, whole)
        return result.index_copy_(1, self.few, few.addcmul(self.usual.unsqueeze(1), whole[:, -1:]))

    def times(self, part: slice, whole: Tensor, few: Tensor) -> Tensor:
        """The part's rows times `weights`, `[chains, rows, n]`."""
        result = product(self.inputs[part], whole)
        if self.few is not None:
            result[0] += self.bags[part.start][0].of(few[0])
        return result

    def add_back(self, part: slice, g: Tensor, values: Tensor, whole: Tensor, few: Tensor) -> None:
        """Add to both parts the sums over rows r of g_r x_r values_r.

        `g` is `[chains, 1, rows]`, `values` `[chains, rows, n]`.
        """
        whole += product(self.transposed[:, part] * g, values)
        if self.few is not None:
            bags = self.bags[part.start][1]
            few[0] += bags.of(values[0], bags.weights * g[0, 0, bags.rows])


def few_deviations(inputs: Tensor) -> Tensor | None:
    """Mask of the columns with one value in most rows, without the last; None if too few."""
    usual = inputs.median(0).values  # a value that more than half of the rows have
    few = (inputs != usual).to(inputs.dtype).mean(0) < MAX_DEVIATION_SHARE
    few[-1] = False
    return few if few.sum() >= MIN_CONSTANT_COLUMNS else None


def indices(mask: Tensor) -> Tensor:
    """Indices at which `mask` is true: to index by a mask would read the host."""
    return mask.nonzero().squeeze(1)


def offsets(sorted_: Tensor, bags: int) -> Tensor:
    """Start of each of the numbers 0 .. bags - 1 in a sorted list, and the list's length."""
    return torch.searchsorted(sorted_, torch.arange(bags + 1, device=sorted_.device))


def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of `a` `[n, k]` or `[chains, n, k]` and `b` `[chains, k, m]`."""
    if len(b) == 1 and use_onednn(a, b):
        return onednn(a.reshape(-1, a.shape[-1]), b[0]).unsqueeze(0)
    return torch.bmm(a.expand(len(b), *a.shape[-2:]), b)
