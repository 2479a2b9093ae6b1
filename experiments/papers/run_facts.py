"""Describe the runs of an experiment for its page: how they were made, and what is missing."""

from collections.abc import Iterable, Sequence
from typing import Any

from latticework.experiments.papers.drawn import Drawn
from latticework.experiments.papers.exhibits import Catalogue
from latticework.experiments.papers.run_status import ExperimentStatus, running_command
from latticework.experiments.records.estimates import duration, share_text
from latticework.experiments.runs.sweeps import extra_override_sets

MAX_LISTED_FAILURES = 5
MAX_LISTED_RUNS = 4


def list_facts(status: ExperimentStatus) -> list[tuple[str, str]]:
    """Scale, runs, data, seeds, device, time, memory and commits of the records shown."""
    documents = [record.document for record in status.drawable_records]
    if not documents:
        return [("Scale", status.scale)]
    done = len(status.runs) - len(status.missing)
    runs = f"{done} of {len(status.runs)}"
    if more := len(status.drawable_records) - done:
        kind = "other seeds or variants of the data" if status.records else "other settings"
        runs += f", and {more} with {kind}"
    peak = describe_peak_memory(documents)
    seconds = sum(document["seconds"] for document in documents)
    facts = [
        ("Scale", status.scale),
        ("Runs", runs),
        ("Data", _join_distinct(map(_describe_data, documents))),
        ("Seeds", describe_seeds(documents)),
        ("Device", _join_distinct(map(_describe_device, documents))),
        ("Time", duration(seconds)),
        ("Timing", share_text(status.drawable_records)),
        ("Memory", f"at most {peak}" if peak else ""),
        ("Commit", _join_distinct(map(_describe_commit, documents))),
        ("Records", status.place),
    ]
    return [(name, text) for name, text in facts if text]


def describe_problems(
    status: ExperimentStatus, drawn: Drawn, catalogue: Catalogue
) -> tuple[list[str], list[tuple[str, str]]]:
    """Describe what is missing or failed, and give the commands that mend some of it."""
    problems, remedies = [], []
    for name, cause in list(status.failed.items())[:MAX_LISTED_FAILURES]:
        problems.append(f"{name} failed: {cause}")
    if status.stopped:
        problems.append(f"stopped or still running: {_list_runs(status.stopped)}")
    begun = {*status.failed, *status.stopped}
    if not_run := [run for run in status.missing if run not in begun]:
        problems.append(f"not run: {_list_runs(not_run)}")
        for extra in _commands_of_missing(status, not_run):
            remedies.append((extra, "makes some of the missing runs"))
    if outdated := _count_outdated(status, catalogue):
        problems.append(
            f"{outdated} of {len(status.drawable_records)} records are outdated: "
            f"they lack the setting {catalogue.settings[status.experiment]}"
        )
        remedies.append((status.command, "makes the outdated runs again"))
    if status.undeclared and status.records:
        problems.append(f"{len(status.undeclared)} more with other settings are not shown")
    return problems + drawn.reasons_not_made, remedies


def _commands_of_missing(status: ExperimentStatus, not_run: Sequence[str]) -> list[str]:
    """The commands of `also` that make some of the missing runs."""
    commands = []
    for words in extra_override_sets(status.experiment):
        for run in not_run:
            if set(words) <= set(run.split(",")):
                commands.append(running_command(status.experiment, status.scale, words))
                break
    return commands


def _count_outdated(status: ExperimentStatus, catalogue: Catalogue) -> int:
    """Records without the setting that every current record of the experiment has."""
    setting = catalogue.settings.get(status.experiment)
    if not setting:
        return 0
    return sum(record.setting(setting) is None for record in status.drawable_records)


def _list_runs(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED_RUNS
    return "; ".join(names[:MAX_LISTED_RUNS]) + (f" and {more} more" if more > 0 else "")


def _join_distinct(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts) - {""}))


def _describe_data(document: dict[str, Any]) -> str:
    texts = []
    for key, name in (("data", "variant"), ("language", "used")):
        source = document.get(key) or {}
        if source.get(name):
            texts.append(f"{source[name]}{' — SUBSTITUTE' if source.get('substitute') else ''}")
    return " with ".join(texts) or "none"


def describe_seeds(documents: Sequence[dict[str, Any]]) -> str:
    """The seeds of the runs, and those of their models if there are several: `0 to 4, 7`."""
    texts = []
    for key, prefix in (("seed", ""), ("model_seed", "models ")):
        seeds = {document["config"].get(key) for document in documents} - {None}
        if len(seeds) > (key == "model_seed"):
            texts.append(prefix + ", ".join(_spans(sorted(seeds))))
    return "; ".join(texts)


def _spans(numbers: Sequence[int]) -> list[str]:
    """Ascending `numbers`, three or more successive ones as a span: `0 to 4`, `7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if not spans or number != spans[-1][-1] + 1:
            spans.append([])
        spans[-1].append(number)
    texts: list[str] = []
    for span in spans:
        if len(span) > 2:
            texts.append(f"{span[0]} to {span[-1]}")
        else:
            texts += map(str, span)
    return texts


def _describe_device(document: dict[str, Any]) -> str:
    text = str(document.get("device", "unknown"))
    if threads := document.get("threads"):
        text += f", {threads} thread" if threads == 1 else f", {threads} threads"
    return f"{text}, PyTorch {document['versions'].get('torch', 'unknown')}"


def describe_peak_memory(documents: Sequence[dict[str, Any]]) -> str:
    """The largest peak of the runs; "" if it is not known."""
    peak = 0
    for document in documents:
        peak = max(peak, document.get("peak_memory_bytes") or 0)
    return f"{peak / 2**30:.2g} GiB" if peak else ""


def _describe_commit(document: dict[str, Any]) -> str:
    commit = document.get("commit")
    return f"{commit[:8]}{'+changes' if document.get('dirty') else ''}" if commit else "unknown"
