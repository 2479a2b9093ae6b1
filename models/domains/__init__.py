"""State spaces, one kind a file: the states, the moves between them, and how moves are drawn."""

from latticework.models.domains.base import Domain, one_hot
from latticework.models.domains.binary import FARTHEST, Binary
from latticework.models.domains.categorical import Categorical
from latticework.models.domains.mixed import Mixed
from latticework.models.domains.moves import USERS_MOVES, Moves
from latticework.models.domains.numbers import Integer, Ordinal
from latticework.models.domains.subset import SWAPS, Subset

__all__ = [
    "FARTHEST",
    "SWAPS",
    "USERS_MOVES",
    "Binary",
    "Categorical",
    "Domain",
    "Integer",
    "Mixed",
    "Moves",
    "Ordinal",
    "Subset",
    "one_hot",
]
