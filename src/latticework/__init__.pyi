# The names of the package. `__init__.py` reads this file, and so do editors and type checkers.

__version__: str

# Sampling, checks and races
from latticework.sampling.checking.check import CheckReport as CheckReport, check as check
from latticework.sampling.checking.draws import (
    DrawsReport as DrawsReport,
    check_draws as check_draws,
)
from latticework.sampling.checking.temperature import (
    Temperature as Temperature,
    temperature as temperature,
)
from latticework import pymc as pymc
from latticework.sampling.dimod_sampler import DimodSampler as DimodSampler
from latticework.sampling.exact import exact as exact
from latticework.sampling.metrics import (
    Acceptance as Acceptance,
    Changed as Changed,
    EnsembleError as EnsembleError,
    MarginalError as MarginalError,
    Metric as Metric,
    Proposed as Proposed,
    Reference as Reference,
    Trace as Trace,
)
from latticework.sampling.mmd import MMD as MMD
from latticework.sampling.adaptation import (
    AcceptanceControl as AcceptanceControl,
    Adaptation as Adaptation,
)
from latticework.sampling.chain import Reading as Reading, run_chain as run_chain
from latticework.sampling.adaptation import CycleControl as CycleControl
from latticework.sampling.perfect import (
    NotCoupledError as NotCoupledError,
    NotMonotoneError as NotMonotoneError,
    perfect as perfect,
)
from latticework.sampling.result import SampleResult as SampleResult
from latticework.sampling.sample import ConvergenceWarning as ConvergenceWarning, sample as sample
from latticework.sampling.summary_result import SummaryResult as SummaryResult
from latticework.sampling.tuning.race import race as race

# Learning
from latticework.sampling.learning.fit import fit as fit
from latticework.sampling.learning.fit_result import FitResult as FitResult

# Targets
from latticework.models.annealed import GeometricPath as GeometricPath, SoftenedPath as SoftenedPath
from latticework.models.scaled_rbm import ScaledRBM as ScaledRBM
from latticework.models.base import (
    AnnealedModel as AnnealedModel,
    EnergyModel as EnergyModel,
    Function as Function,
)
from latticework.models.abilities import (
    CarriesRates as CarriesRates,
    DataModel as DataModel,
    Predictor as Predictor,
)
from latticework.models.bayes_net import (
    BayesNet as BayesNet,
    synthetic_bayes_net as synthetic_bayes_net,
)
from latticework.models.conditioned import Conditioned as Conditioned, WithOnes as WithOnes
from latticework.models.domains import (
    Binary as Binary,
    Categorical as Categorical,
    Domain as Domain,
    Integer as Integer,
    Mixed as Mixed,
    Moves as Moves,
    Ordinal as Ordinal,
    Subset as Subset,
)
from latticework.models.factors import Factors as Factors
from latticework.models.tables import Factor as Factor
from latticework.models.fhmm import FactorialHMM as FactorialHMM, synthetic_fhmm as synthetic_fhmm
from latticework.models.graph import Graph as Graph
from latticework.models.graph_potts import GraphPotts as GraphPotts
from latticework.models.graph_files import (
    graph as graph,
    read_evidence as read_evidence,
    read_graph as read_graph,
    regular_graph as regular_graph,
)
from latticework.models.infilling import TextInfilling as TextInfilling
from latticework.models.ising import Lattice as Lattice, critical_lattice as critical_lattice
from latticework.models.dense_ising import (
    DenseIsing as DenseIsing,
    LearnedIsing as LearnedIsing,
    erdos_renyi as erdos_renyi,
    sherrington_kirkpatrick as sherrington_kirkpatrick,
)
from latticework.models.masked_lm import MaskedLM as MaskedLM
from latticework.models.potts import (
    DensePotts as DensePotts,
    LatticePotts as LatticePotts,
    critical_potts as critical_potts,
    random_potts as random_potts,
)
from latticework.models.quadratic import (
    LogQuadratic as LogQuadratic,
    Sine as Sine,
    quadratic_ising as quadratic_ising,
)
from latticework.models.rated_rbm import RatedRBM as RatedRBM
from latticework.models.rbm import RBM as RBM
from latticework.models.references.catalogue import (
    ReferenceTarget as ReferenceTarget,
    reference as reference,
    references as references,
)
from latticework.models.regression import (
    BinaryRegression as BinaryRegression,
    synthetic_regression as synthetic_regression,
)
from latticework.models.resnet import ResNet as ResNet
from latticework.models.selection import VariableSelection as VariableSelection

# Samplers
from latticework.samplers.acs import ACS as ACS
from latticework.samplers.avg import AVG as AVG
from latticework.samplers.base import (
    Info as Info,
    Sampler as Sampler,
    State as State,
    UnsupportedModelError as UnsupportedModelError,
    metropolis as metropolis,
    require_domain as require_domain,
)
from latticework.samplers.block_gibbs import BlockGibbs as BlockGibbs
from latticework.samplers.dhams import DHAMS as DHAMS
from latticework.samplers.dlmc import DLMC as DLMC, DLMCf as DLMCf
from latticework.samplers.edlp import EDLP as EDLP
from latticework.samplers.gibbs import Gibbs as Gibbs
from latticework.samplers.gwg import GWG as GWG
from latticework.samplers.hamming import HammingBall as HammingBall
from latticework.samplers.langevin import DMALA as DMALA, DULA as DULA
from latticework.samplers.locally_balanced import LocallyBalanced as LocallyBalanced
from latticework.samplers.path_auxiliary import (
    PAFS as PAFS,
    PAFSWithReplacement as PAFSWithReplacement,
)
from latticework.samplers.pavg import PAVG as PAVG
from latticework.samplers.random_walk import RandomWalk as RandomWalk
from latticework.samplers.rates import (
    RatesFPCD as RatesFPCD,
    RatesHerding as RatesHerding,
    SamplePenalization as SamplePenalization,
)
from latticework.samplers.relaxed import RMALA as RMALA
from latticework.samplers.stochastic_dula import StochasticDULA as StochasticDULA
from latticework.samplers.svgd import DiscreteSVGD as DiscreteSVGD
from latticework.samplers.sweep import (
    GibbsSweep as GibbsSweep,
    MetropolisSweep as MetropolisSweep,
)
from latticework.samplers.swendsen_wang import SwendsenWang as SwendsenWang
from latticework.samplers.tempered import Tempered as Tempered

# Records of runs
from latticework.experiments.records.record import Record as Record, load_all as load_all
