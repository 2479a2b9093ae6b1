"""The table of a race, which can be plotted."""

from typing import Any

import pandas as pd


class RaceTable(pd.DataFrame):
    """One row a sampler, best first. Parts of it are plain data frames."""

    def plot(self) -> Any:
        """Effective samples in the unit of the budget, with intervals, as a Matplotlib figure.

        A notebook shows it, and `savefig` writes it.
        """
        from latticework.sampling.pictures import draw_race_rates

        return draw_race_rates(pd.DataFrame(self), self.attrs["unit"])
