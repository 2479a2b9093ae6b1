"""A model: particles on a ring that repel their neighbours."""

from torch import Tensor

from latticework import Binary, EnergyModel


class HardCore(EnergyModel):
    """log pi(x) = attraction * (particles) - repulsion * (adjacent pairs), x in {0, 1}^dim."""

    def __init__(self, dim: int, attraction: float, repulsion: float) -> None:
        super().__init__()
        self.domain = Binary(dim)
        self.attraction, self.repulsion = attraction, repulsion

    def forward(self, x: Tensor) -> Tensor:
        pairs = (x * x.roll(1, -1)).sum(-1)
        return self.attraction * x.sum(-1) - self.repulsion * pairs
