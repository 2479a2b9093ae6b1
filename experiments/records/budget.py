"""The budget of a run: how many chains, how many steps, and how often they are read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """`chains` chains take `steps` steps each; metrics are read every `every` steps.

    Raises ValueError unless all three are positive and `steps` is a multiple of `every`.
    """

    chains: int
    steps: int
    every: int = 1

    def __post_init__(self) -> None:
        for name in ("chains", "steps", "every"):
            if (count := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be positive, got {count}")
        if self.steps % self.every:
            raise ValueError(
                f"steps must be a multiple of every, got {self.steps} and {self.every}"
            )

    @property
    def readings(self) -> int:
        """The number of readings after the start."""
        return self.steps // self.every
