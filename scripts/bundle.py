"""Pack the paper-scale records of experiments into small files in docs/results/records.

python -m latticework.scripts.bundle ising_sampling rbm_sampling
python -m latticework.scripts.bundle all   # every experiment of the exhibits that has records

Packs the finished runs that an experiment declares, with additional seeds; `--others` also packs
runs with other settings. `--add` keeps the runs of the present bundle that have no new record.
Prints what was left out. Fails if a claim has another verdict on the bundle than on the records.
"""

from collections.abc import Sequence
from pathlib import Path

from latticework.experiments.papers.bundle import TARGET_BUNDLE_BYTES, write_bundle
from latticework.experiments.papers.claims.ledger import CLAIMS, Pool, judge
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.run_status import load_status
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.grouping import drop_repeated_runs
from latticework.experiments.records.identity import strip_digest
from latticework.experiments.records.record import BUNDLES, Record, load_all
from latticework.experiments.runs.sweeps import experiment_exists
from latticework.scripts.arguments import outputs, parser_of


def main(words: list[str] | None = None) -> int:
    """Return the exit status: 1 if a bundle changes a verdict, or if there is nothing to pack."""
    parser = parser_of("bundle", __doc__)
    parser.add_argument("experiments", nargs="+", help="names of experiments, or all")
    parser.add_argument("--outputs", type=Path, default=outputs(), help="the folder of the records")
    parser.add_argument("--to", type=Path, default=BUNDLES)
    parser.add_argument("--others", action="store_true", help="also pack runs with other settings")
    parser.add_argument(
        "--add", action="store_true", help="keep the bundle's runs without a record"
    )
    chosen = parser.parse_args(words)
    known, status = catalogue(), 0
    everything = chosen.experiments == ["all"]
    for name in known.experiments() if everything else chosen.experiments:
        held = (
            load_status(name, "paper", chosen.outputs, Path()) if experiment_exists(name) else None
        )
        records = (
            [] if held is None else [*held.records, *(held.undeclared if chosen.others else ())]
        )
        if held is None or not records:
            if not everything:
                print(f"{name}: no finished run at the paper's scale in {chosen.outputs}")
                status = 1
            continue
        target = chosen.to / f"{name}.zip"
        if chosen.add and target.is_file():
            records = merge_records(load_all(target), records)
        done = write_bundle(records, held.config, target)
        print(f"{done.file}: {done.size:,} bytes, {done.runs} runs of {len(held.runs)}")
        if done.size > TARGET_BUNDLE_BYTES:
            print(f"  larger than the target of {TARGET_BUNDLE_BYTES:,} bytes")
        if done.thinned:
            print(f"  curves thinned in {done.thinned} runs")
        if done.too_large:
            first = escape_terminal(done.too_large[0])
            print(f"  left out: {len(done.too_large)} arrays, such as {first}")
        if done.long:
            long = escape_terminal(", ".join(done.long))
            print(f"  left out, except of the first seeds: {long} of run.json")
        for claim, before, after in compare_verdicts(name, records, load_all(done.file)):
            print(f"  {claim}: {before} on the records, {after} on the bundle")
            status = 1
    return status


def merge_records(old: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """Records of both, in the order of their folders. New records replace old ones of the same run.

    Two records are of one run if they have the same overrides or the same configuration.
    """
    names = {strip_digest(record.path.name) for record in new}
    both = list(new)
    for record in old:
        if strip_digest(record.path.name) not in names:
            both.append(record)
    both = drop_repeated_runs(both)
    return sorted(both, key=lambda record: record.path.name)


def compare_verdicts(
    name: str, records: list[Record], bundled: list[Record]
) -> list[tuple[str, str, str]]:
    """Return the claims whose verdict the bundle changes, with both verdicts."""
    claims = [claim for claim in CLAIMS if claim.experiment == name]
    before = judge({name: [Pool("paper", True, records)]}, claims)
    after = judge({name: [Pool("paper", True, bundled)]}, claims)
    changes: list[tuple[str, str, str]] = []
    for old, new in zip(before, after, strict=True):
        if old.verdict != new.verdict:
            changes.append((old.claim.name, old.verdict, new.verdict))
    return changes


if __name__ == "__main__":
    raise SystemExit(main())
