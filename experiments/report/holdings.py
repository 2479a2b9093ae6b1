"""What there is of an experiment at a scale: runs that finished, failed, stopped or are missing.

The runs that count are those of the sweep that the experiment's YAML declares, and the same with
other seeds or on a variant of their data set, which keeps its own name. Imports no torch.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from experiments import resolvers
from experiments.claims.ledger import Pool
from experiments.record import BUNDLES, Record, load_all

CONF = Path(__file__).resolve().parents[2] / "conf"
SCALES = ("paper", "quick", "smoke")  # the best first
SEEDS = ("seed", "model_seed")
VARIANTS = {"data=news_partial": "data=news", "data=omniglot_derived": "data=omniglot"}


@dataclass(frozen=True)
class Sweep:
    """What an experiment declares at a scale: its configuration, and its runs' folder names."""

    config: DictConfig
    runs: tuple[str, ...]
    kinds: frozenset[frozenset[str]]  # their overrides, but for seeds


@dataclass(frozen=True)
class Holding:
    """The records of an experiment at a scale. `others` have settings of their own."""

    experiment: str
    scale: str
    config: DictConfig
    place: str  # outputs, or the bundle's file name
    runs: tuple[str, ...]
    records: list[Record]
    others: list[Record] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # run: the first line of its error
    stopped: list[str] = field(default_factory=list)  # begun and not finished

    @property
    def missing(self) -> list[str]:
        done = {record.path.name for record in self.records}
        return [run for run in self.runs if run not in done]

    @property
    def shown(self) -> list[Record]:
        """What figures are made of: the runs that count, or the others where there is none."""
        return self.records or self.others

    @property
    def command(self) -> str:
        return command(self.experiment, self.scale)

    def pools(self) -> list[Pool]:
        """The records as the ledger takes them, the best first."""
        real = [record for record in self.records if record.substitute is None]
        pools = [Pool(self.scale, self.scale == "paper", real)] if real else []
        if len(real) < len(self.records):
            pools.append(Pool(f"{self.scale}, substitutes", False, self.records))
        if self.others:
            pools.append(Pool(f"{self.scale}, settings of their own", False, self.others))
        return pools


def command(experiment: str, scale: str = "paper", also: Sequence[str] = ()) -> str:
    """What runs the experiment; finished runs are skipped."""
    words = ["python run.py", f"experiment={experiment}", *also]
    return " ".join(words + ([] if scale == "paper" else [f"scale={scale}"]))


def exists(experiment: str) -> bool:
    return (CONF / "experiment" / f"{experiment}.yaml").is_file()


@cache
def _declared(experiment: str, scale: str, also: tuple[str, ...]) -> Sweep:
    resolvers.register(CONF)
    words = [f"experiment={experiment}", f"scale={scale}"]
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("config", [*words, *also], return_hydra_config=True)
    hydra = config.hydra
    params = hydra.sweeper.get("params") or {}
    texts = [*(f"{key}={params[key]}" for key in params), *also]
    skipped = set(hydra.job.config.override_dirname.exclude_keys)
    choices = []
    for override in OverridesParser.create().parse_overrides(texts):
        key = override.get_key_element()
        if key in skipped:
            continue
        if override.is_sweep_override():
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([f"{key}={override.get_value_element_as_str()}"])
    runs = [sorted(run) for run in product(*choices)]
    names = tuple(resolvers.folder(",".join(run)) for run in runs)
    return Sweep(config, names, frozenset(kind(run, skipped) for run in runs))


def kind(overrides: Sequence[str], skipped: Collection[str] = ()) -> frozenset[str]:
    """What a run is, but for seeds and variants of data: more than is declared counts as well."""
    named = (o for o in overrides if o.split("=")[0] not in {*skipped, *SEEDS})
    return frozenset(VARIANTS.get(override, override) for override in named)


def declared(experiment: str, scale: str, also: Sequence[Sequence[str]] = ()) -> Sweep:
    """The sweep of the experiment's YAML, and the same with each of the overrides of `also`."""
    sweep = _declared(experiment, scale, ())
    all_of = [sweep, *(_declared(experiment, scale, tuple(words)) for words in also)]
    runs = tuple(run for one in all_of for run in one.runs)
    return Sweep(sweep.config, runs, frozenset().union(*(one.kinds for one in all_of)))


def holding(
    experiment: str,
    scale: str,
    outputs: Path | None,
    also: Sequence[Sequence[str]] = (),
    bundles: Path = BUNDLES,
) -> Holding | None:
    """What `outputs` has of the experiment; else, at the paper's scale, what its bundle has.

    None where there is no trace of it. Without `outputs` only the bundle counts.
    """
    folder = None if outputs is None else outputs / experiment / scale
    bundle = bundles / f"{experiment}.zip"
    found: list[Record] = []
    place = "outputs"
    if folder is not None and folder.is_dir():
        found = _finished(folder)
    if not found and scale == "paper" and bundle.is_file():
        found, place, folder = load_all(bundle), bundle.name, None
    failed, stopped = _unfinished(folder) if folder is not None else ({}, [])
    if not (found or failed or stopped):
        return None
    sweep = declared(experiment, scale, also)
    skipped = sweep.config.hydra.job.config.override_dirname.exclude_keys
    mine: list[Record] = []
    others: list[Record] = []
    for record in found:
        counts = kind(record.document["overrides"], skipped) in sweep.kinds
        (mine if counts else others).append(record)
    return Holding(
        experiment, scale, sweep.config, place, sweep.runs, mine, others, failed, stopped
    )  # fmt: skip


def _finished(folder: Path) -> list[Record]:
    try:
        return load_all(folder)
    except FileNotFoundError:
        return []


def _unfinished(folder: Path) -> tuple[dict[str, str], list[str]]:
    failed, stopped = {}, []
    for run in sorted(path.parent for path in folder.glob("*/.hydra")):
        if (run / "run.json").exists():
            continue
        if (error := run / "error.txt").exists():
            failed[run.name] = (error.read_text().splitlines() or ["no reason given"])[0]
        else:
            stopped.append(run.name)
    return failed, stopped


def holdings(
    experiments: Sequence[str],
    outputs: Path | None,
    also: dict[str, list[list[str]]] | None = None,
    bundles: Path = BUNDLES,
    scales: Sequence[str] = SCALES,
) -> dict[str, list[Holding]]:
    """By experiment, at each scale there is something of, the best scale first."""
    result: dict[str, list[Holding]] = {}
    for name in experiments:
        if not exists(name):
            continue
        extra = (also or {}).get(name, ())
        found = [holding(name, scale, outputs, extra, bundles) for scale in scales]
        result[name] = [one for one in found if one is not None]
    return result


def pools(held: dict[str, list[Holding]]) -> dict[str, list[Pool]]:
    """What the ledger judges: by experiment, the best pool first."""
    return {name: [pool for one in some for pool in one.pools()] for name, some in held.items()}
