"""The first difference of two tables of metrics."""

import numpy as np
import pandas as pd

from workshop.compare import first_difference

TABLE = pd.DataFrame({"step": [0, 1, 2], "seconds": [0.0, 1.0, 2.0], "a": [1.0, 2.0, np.nan]})


def test_the_first_difference_is_named():
    assert first_difference(TABLE, TABLE.copy()) == ""
    assert first_difference(TABLE, TABLE.assign(seconds=5.0)) == ""
    text = first_difference(TABLE, TABLE.assign(a=[1.0, 2.5, np.nan]))
    assert text == "metrics.csv first differs in row 2, column a: 2.0 and 2.5"
    assert "3 and 2 rows; the first 2 are equal" in first_difference(TABLE, TABLE[:2])
    assert "columns of metrics.csv" in first_difference(TABLE, TABLE.assign(b=1))
