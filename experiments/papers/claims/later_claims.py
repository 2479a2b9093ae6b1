"""The claims of the papers after Zhang et al. (2022)."""

from latticework.experiments.papers.claims import later_samplers
from latticework.experiments.papers.claims.claim import Claim

LATER_CLAIMS = (
    Claim("later-paths", "benchmark", "benchmark",
        "Path-auxiliary samplers and DLMC have more effective samples for an iteration than GWG "
        "and DMALA",
        "Sun et al. (ICLR 2022; AISTATS 2023)", later_samplers.later_paths),
    Claim("later-cyclical", "benchmark", "benchmark",
        "On a multimodal RBM, ACS has the smaller error at equal iterations than DMALA",
        "Pynadath et al. (2024)", later_samplers.later_cyclical),
    Claim("later-preconditioned", "benchmark", "benchmark",
        "PAVG accepts every move on a quadratic target",
        "Rhodes and Gutmann (2022)", later_samplers.later_preconditioned),
    Claim("later-linear", "benchmark-scaling", "benchmark_scaling",
        "DHAMS accepts every move where the log-probability is linear",
        "Zhou and Tan (2025)", later_samplers.later_linear),
    Claim("later-scaling", "benchmark-scaling", "benchmark_scaling",
        "On independent sites, PAFS gains a factor N^(2/3) over a random walk",
        "Sun et al. (NeurIPS 2022)", later_samplers.later_scaling),
)  # fmt: skip
