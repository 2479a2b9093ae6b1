"""The residual network: its fast form, its gradient, its local method, its precisions."""

import copy

import pytest
import torch
from torch import Generator, nn
from torch.utils._python_dispatch import TorchDispatchMode

import latticework as lw


def network(shape=(6, 4), maps=5, blocks=3, **settings):
    torch.manual_seed(0)
    model = lw.ResNet(shape, maps, blocks, **settings)
    for parameter in model.parameters():
        parameter.normal_(0, 0.35)
    model.start_from_data(torch.linspace(0, 1, model.domain.dim))
    return model


def written_out(model, x):
    """The definition, layer by layer."""
    z = nn.functional.conv2d(
        x.view(-1, 1, model.height, model.width),
        model.network.enter.weight,
        model.network.enter.bias,
        padding=1,
    )
    for number, block in enumerate(model.network.blocks):
        stride = 2 if number < 2 else 1
        inner = nn.functional.conv2d(z, block.first.weight, block.first.bias, stride, 1)
        inner = inner * inner.sigmoid()
        inner = nn.functional.conv2d(inner, block.second.weight, block.second.bias, 1, 1)
        if stride == 2:
            z = nn.functional.conv2d(z, block.shortcut.weight, block.shortcut.bias, 2)
        z = inner + z
        z = z * z.sigmoid()
    value = z.flatten(2).mean(-1) @ model.head.weight.T + model.head.bias
    return value.squeeze(-1) + x @ model.base


def states(model, chains=7):
    return model.domain.uniform(chains, Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(6, 4), (2, 2), (8, 8), (28, 28)])
@pytest.mark.parametrize("blocks", [1, 3])
def test_value_and_gradient_are_the_definitions(shape, blocks):
    model = network(shape, blocks=blocks).double()
    rng = Generator().manual_seed(2)
    for x in (states(model).double(), torch.rand(5, model.domain.dim, generator=rng).double()):
        point = x.clone().requires_grad_()
        expected = written_out(model, point)
        (grad,) = torch.autograd.grad(expected.sum(), point)
        value, found = model.log_prob_and_grad(x)
        torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found, grad, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(model(x), value)
        torch.testing.assert_close(model.gradient(x), found)
        torch.testing.assert_close(
            model.network.plain(x.view(-1, 1, *shape)), model.network(x.view(-1, 1, *shape))
        )


class Convolutions(TorchDispatchMode):
    """Notes the kernel size and the stride of each convolution and of each backward pass."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.seen.append(("forward", tuple(args[1].shape[2:]), tuple(args[3])))
        elif func is torch.ops.aten.convolution_backward.default:
            self.seen.append(("backward", tuple(args[2].shape[2:]), tuple(args[4])))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", ["forward", "plain", None, "all"])
def test_no_1x1_convolution_has_a_stride(form):
    """oneDNN's corrupts the heap, on processors with AVX2 and no AVX-512 (`models.resnet`).

    A sampling gradient, in single precision or bf16, makes one backward pass a convolution.
    """
    learning = form in ("forward", "plain")
    model = network((8, 8), maps=4, bf16=None if learning else form).requires_grad_(True)
    with Convolutions() as convolutions:
        if learning:
            images = states(model).view(-1, 1, 8, 8).requires_grad_()
            getattr(model.network, form)(images).sum().backward()
        else:
            assert not any(found.requires_grad for found in model.log_prob_and_grad(states(model)))
    backward = [call[1:] for call in convolutions.seen if call[0] == "backward"]
    assert ("forward", (3, 3), (2, 2)) in convolutions.seen
    assert ((3, 3), (2, 2)) in backward
    assert not [call for call in convolutions.seen if call[1] == (1, 1) and call[2] != (1, 1)]
    assert learning or len(backward) == 6


@pytest.mark.parametrize(
    ("maps", "shape", "chains"),
    [(4, (28, 28), 7), (5, (28, 28), 16), (8, (14, 10), 7), (8, (30, 26), 3)],
)
def test_learning_gradients_are_those_of_the_definition(maps, shape, chains):
    """Few maps, odd sizes after halving, small batches: `make test-avx2` checks the heap here."""
    model = network(shape, maps=maps).requires_grad_(True)
    for parameter in model.parameters():
        parameter.data /= maps**0.5
    x = states(model, chains)
    exact = copy.deepcopy(model).double()
    written_out(exact, x.double()).mean().backward()
    for _ in range(3):  # a corrupted heap shows at a later allocation
        model.zero_grad()
        model(x).mean().backward()
    for found, expected in zip(model.parameters(), exact.parameters(), strict=True):
        scale = float(expected.grad.abs().max())
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=1e-3, atol=1e-4 * scale)


def test_the_base_measure_is_the_smoothed_data_mean():
    model = lw.ResNet((2, 2), 3, 1)
    mean = torch.tensor([0.0, 0.25, 0.5, 1.0])
    model.start_from_data(mean)
    model.head.weight.zero_()
    law = model(model.domain.enumerate()).softmax(0)
    torch.testing.assert_close(law @ model.domain.enumerate(), 0.98 * mean + 0.01)


def test_bf16_gradients_leave_values_alone():
    exact, rough, low = (network((8, 8), bf16=mode) for mode in (None, "gradient", "all"))
    x = states(exact)
    value, grad = exact.log_prob_and_grad(x)
    for model, same in ((rough, True), (low, False)):
        found, gradient = model.log_prob_and_grad(x)
        assert found.dtype == gradient.dtype == torch.float32
        assert torch.equal(found, value) is same
        assert torch.equal(model(x), value) is same
        assert torch.equal(model.gradient(x), gradient)
        error = (gradient - grad).norm() / grad.norm()
        assert 0 < error < 0.05
