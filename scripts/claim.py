"""Judge one claim of the papers from the records present, and show its cheapest evidence.

python -m latticework.scripts.claim                  # the names of all claims
python -m latticework.scripts.claim fig4-lowest      # its command, its intervals and its verdict

Runs nothing. The command that is printed makes the runs of the options that the claim needs, with
the fewest first seeds that decide it as all records do; after it the same command judges them.
Reads the outputs folder and, for an experiment without paper-scale records there,
docs/results/records.
"""

from pathlib import Path

from latticework.experiments.papers.claims.evidence import DecisiveRuns, find_cheapest
from latticework.experiments.papers.claims.ledger import CLAIMS, Claim, judge_claim
from latticework.experiments.papers.run_status import load_statuses, pools
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.estimates import duration
from latticework.experiments.runs.errors import one_line_errors
from latticework.scripts.arguments import outputs, parser_of


def main(words: list[str] | None = None) -> None:
    parser = parser_of("claim", __doc__)
    parser.add_argument("name", nargs="?", help="a claim; default: list all")
    parser.add_argument("--outputs", type=Path, default=outputs(), help="the folder of the records")
    chosen = parser.parse_args(words)
    claims = {claim.name: claim for claim in CLAIMS}
    if chosen.name is None:
        for claim in CLAIMS:
            print(f"{claim.name}: {claim.text}")
        return
    if chosen.name not in claims:
        raise SystemExit(f"{chosen.name} is not a claim; without a name, this command lists them")
    for line in describe(claims[chosen.name], chosen.outputs):
        print(escape_terminal(line))


def describe(claim: Claim, folder: Path | None) -> list[str]:
    """The claim, the command of its cheapest evidence, the intervals of that, and the verdict."""
    held = pools(load_statuses([claim.experiment], folder)).get(claim.experiment, [])
    entry = judge_claim(claim, held)
    lines = [f"{claim.text} ({claim.source})"]
    if entry.finding is None:
        return [*lines, f"{entry.verdict}: {entry.needs}"]
    pool = next(pool for pool in held if judge_claim(claim, [pool]).finding)
    evidence = find_cheapest(claim, pool)
    lines.append(_describe_runs(claim, evidence))
    if evidence.entry.finding:
        lines.extend(f"  {margin.text()}" for margin in evidence.entry.finding.margins)
    lines.append(f"these runs: {evidence.entry.verdict}; all records: {entry.verdict}")
    if entry.indication:
        lines.append(f"they only indicate ({entry.basis}): {entry.indication}")
    return [*lines, f"to decide: {entry.needs}"] if entry.needs else lines


def _describe_runs(claim: Claim, evidence: DecisiveRuns) -> str:
    """The command of the runs, their number, and the time that they took."""
    words = ["python run.py", f"experiment={claim.experiment}"]
    words += [f"{key}={','.join(values)}" for key, values in evidence.overrides.items()]
    first, count = evidence.seeds[0], len(evidence.seeds)
    if count > 3 and evidence.seeds == list(range(first, first + count)):
        words.append(f'"{claim.seed}=range({first},{first + count})"')
    else:
        words.append(f"{claim.seed}={','.join(map(str, evidence.seeds))}")
    time = duration(evidence.seconds)
    return f"{' '.join(words)}    # {len(evidence.records)} runs took {time} in all"


if __name__ == "__main__":
    with one_line_errors():
        main()
