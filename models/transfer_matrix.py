"""Exact normaliser and means of a lattice Ising model, by transfer matrices.

    Z = sum_s exp(a s'Js + b's),     s in {-1, 1}^sites, J the lattice's adjacency (models.lattice)

Cut across its longest axis, the lattice is a chain of L layers r_1 .. r_L, each with 2^n states:

    open       Z = 1' D_1 K D_2 K ... K D_L 1        D_t = diag exp(a r'Jr + b_t'r), one layer alone
    periodic   Z = trace( D_1 K D_2 K ... K D_L K )  K(r, r') = exp(2 a r'r'), two layers

A lattice of 2^25 states then costs a few products of 32 x 32 matrices. The mean of s is the
gradient of log Z with respect to b, computed by autograd. Without a coupling, sites are independent
and the lattice may have any size; so may a ferromagnetic torus without a field (`torus`).
"""

import math

import torch
from torch import Tensor

from latticework.models.domains import Binary
from latticework.models.lattice import neighbour_sum

LARGEST_LAYER = 10  # sites; the matrices are 2^n x 2^n


def log_z_and_mean(
    shape: tuple[int, ...], coupling: float, bias: Tensor, periodic: bool
) -> tuple[Tensor, Tensor]:
    """The exact log Z (scalar) and the mean of x = (1 + s) / 2 `[sites]`, both float64.

    `bias` is `[sites]` in row-major order. Raises ValueError when sites are coupled and a layer
    across the longest axis has more than 10 of them, and when the products leave the range of
    double precision.
    """
    if coupling > 0 and periodic and len(shape) == 2 and min(shape) > 2 and not bias.any():
        total, mean_spin = torus(shape, coupling), torch.zeros(bias.shape, dtype=torch.float64)
    else:
        with torch.enable_grad():
            bias = bias.detach().double().requires_grad_()
            total = exact_log_z(shape, coupling, bias, periodic)
            (mean_spin,) = torch.autograd.grad(total, bias)
    if not (total.isfinite() and mean_spin.isfinite().all()):
        raise ValueError(
            "the transfer matrices overflow or underflow: couplings and biases of hundreds of nats "
            "are too strong for them; estimate the means by sampling"
        )
    return total.detach(), (1 + mean_spin) / 2


def torus(shape: tuple[int, ...], coupling: float) -> Tensor:
    """The exact log Z of a ferromagnetic torus `shape`, m x n, without a field.

    B. Kaufman, "Crystal statistics II", Physical Review 1949: with K = 2 a for each bond,
    cosh g_r = cosh 2K coth 2K - cos(pi r / n) and g_0 = 2K + log tanh K, Z is half of
    (2 sinh 2K)^(mn/2) times the sum of the products of 2 cosh(m g_r / 2) and of 2 sinh(m g_r / 2)
    over the odd r below 2n, and of both over the even r.
    """
    (m, n), k = shape, torch.tensor(2 * coupling, dtype=torch.float64)
    r = torch.arange(2 * n, dtype=torch.float64)
    g = (torch.cosh(2 * k) / torch.tanh(2 * k) - torch.cos(torch.pi * r / n)).clamp(min=1).acosh()
    g[0] = 2 * k + k.tanh().log()
    half = m * g.abs() / 2
    cosh, sinh = half + (-2 * half).exp().log1p(), half + (-(-2 * half).expm1()).log()
    odd, even = slice(1, None, 2), slice(0, None, 2)
    parts = torch.stack([part[rows].sum() for rows in (odd, even) for part in (cosh, sinh)])
    signs = torch.tensor([1.0, 1.0, 1.0, g[0].sign()], dtype=torch.float64)
    top = parts.max()
    total = (signs * (parts - top).exp()).sum().log() + top
    return total - math.log(2) + m * n / 2 * (2 * torch.sinh(2 * k)).log()


def exact_log_z(shape: tuple[int, ...], coupling: float, bias: Tensor, periodic: bool) -> Tensor:
    """The exact log Z as a differentiable function of the bias `[sites]`, float64."""
    if coupling == 0:
        return torch.logaddexp(bias, -bias).sum()
    axis = max(range(len(shape)), key=lambda a: shape[a])
    length, layer = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    if math.prod(layer) > LARGEST_LAYER:
        raise ValueError(
            f"a transfer matrix needs a layer of at most {LARGEST_LAYER} sites, the lattice "
            f"{list(shape)} has layers of {math.prod(layer)}; estimate its means by sampling"
        )
    spins = 2 * Binary(math.prod(layer)).enumerate().to(bias) - 1  # [states, n]
    alone = coupling * (spins * neighbour_sum(spins, layer, periodic)).sum(-1)
    layers = bias.view(shape).movedim(axis, 0).reshape(length, -1) @ spins.T + alone
    between = 2 * coupling * spins @ spins.T
    ring = periodic and length > 2

    # Every factor is divided by its largest entry, whose logarithm is added to `scale`.
    tops = layers.detach().amax(-1, keepdim=True)
    scale = tops.sum() + between.max() * (length if ring else length - 1)
    weights, kernel = (layers - tops).exp(), (between - between.max()).exp()
    product = weights[0].diag() if ring else weights[:1]  # [states or 1, states]
    for weight in weights[1:]:
        product = product @ kernel * weight
        largest = product.detach().max()
        product, scale = product / largest, scale + largest.log()
    total = (product * kernel).sum() if ring else product.sum()  # kernel is symmetric
    return scale + total.log()
