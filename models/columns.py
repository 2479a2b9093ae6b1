"""A tall matrix times weights, where many of its columns hold one value in most rows.

One-hot categories and counts of rare words are such columns, also once standardised: 77 of Adult's
88 and 224 of Blog Feedback's 276. With u_c the usual value of such a column, and e_rc what row r
deviates from it by,

    sum_c x_rc w_c = sum_c u_c w_c + sum_c e_rc w_c,

where the first sum is the same for all rows and the second has a term for each deviation: 2.4 a row
of Adult's, 8.6 of Blog's. The columns that vary stay a matrix.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # of no public function as yet
FEW = 0.25  # of the rows: a deviation costs a CPU 2 to 5 times what an element of a matrix does
LEAST = 32  # such columns: adding up deviations costs a pass over the sums (14 gain nothing)


class Bags(NamedTuple):
    """Sums of rows of a table: bag i is of `rows[offsets[i]:offsets[i + 1]]`, by `weights`."""

    rows: Tensor
    offsets: Tensor
    weights: Tensor

    def of(self, table: Tensor, weights: Tensor | None = None) -> Tensor:
        """`[bags, n]` from a table `[.., n]`."""
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

    `transposed` is its transpose, each column's numbers side by side. With `split`, columns of few
    deviations are kept as these, and a part is multiplied by the weights of one chain at a time.
    """

    def __init__(self, inputs: Tensor, transposed: Tensor, parts: list[slice], split: bool) -> None:
        self.inputs, self.transposed = inputs, transposed
        self.few = few_deviations(inputs) if split else None  # which columns, None for none
        if self.few is not None:
            self.inputs, rare = inputs[:, ~self.few], inputs[:, self.few]
            self.transposed = transposed[~self.few]
            self.usual = rare.median(0).values
            row, column = (rare != self.usual).nonzero(as_tuple=True)
            value = (rare - self.usual)[row, column]
            self.bags = {part.start: self._bags(row, column, value, part) for part in parts}

    def _bags(self, row: Tensor, column: Tensor, value: Tensor, part: slice) -> tuple[Bags, Bags]:
        """Of one part: a bag a row, of columns, and a bag a column, of rows."""
        here = (row >= part.start) & (row < part.stop)
        row, column, value = row[here] - part.start, column[here], value[here]
        order = column.argsort(stable=True)
        return (
            Bags(column, offsets(row, len(self.inputs[part])), value),
            Bags(row[order], offsets(column[order], len(self.usual)), value[order]),
        )

    def weights(self, full: Tensor) -> tuple[Tensor, Tensor]:
        """`full` `[chains, columns, n]` as those of the matrix and those of the deviations."""
        if self.few is None:
            return full, full[:, :0]
        whole, few = full[:, ~self.few], full[:, self.few].contiguous()
        whole[:, -1] += self.usual @ few
        return whole, few

    def full(self, whole: Tensor, few: Tensor) -> Tensor:
        """The transpose of `weights`: derivatives by both parts as those by all columns."""
        if self.few is None:
            return whole
        result = whole.new_empty(len(whole), len(self.few), whole.shape[2])
        result[:, ~self.few] = whole
        result[:, self.few] = few.addcmul(self.usual.unsqueeze(1), whole[:, -1:])
        return result

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
    """A mask of the columns, but the last, that hold one value in most rows; None if too few do."""
    usual = inputs.median(0).values  # a value that more than half of the rows have
    few = (inputs != usual).to(inputs.dtype).mean(0) < FEW
    few[-1] = False
    return few if few.sum() >= LEAST else None


def offsets(sorted_: Tensor, bags: int) -> Tensor:
    """Where each of `bags` numbers begins in a sorted list of them, and the list's end."""
    return torch.searchsorted(sorted_, torch.arange(bags + 1, device=sorted_.device))


def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of `a`, `[n, k]` or one a chain, and `b` `[chains, k, m]`.

    For one chain in single precision on a CPU it is oneDNN's, where this PyTorch has it, which
    takes half the time of MKL's on AMD processors (PyTorch 2.13).
    """
    alone = len(b) == 1 and not (a.is_cuda or b.requires_grad or a.dtype != torch.float32)
    if alone and ONEDNN is not None:
        return ONEDNN(a.reshape(-1, a.shape[-1]), b[0].mT, None, "none", [], "").unsqueeze(0)
    return torch.bmm(a.expand(len(b), *a.shape[-2:]), b)
