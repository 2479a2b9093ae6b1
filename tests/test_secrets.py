"""Passwords in URLs and the values of environment variables reach no file that a command leaves."""

from pathlib import Path

import optuna
import pytest
from command import command_line, only

from latticework.experiments.records.identity import digest, mask_passwords
from latticework.sampling.tuning import study

pytestmark = pytest.mark.usefixtures("eager")

PASSWORD, HOST = "hunter2", "db.example.org"
URL = f"postgresql://me:{PASSWORD}@{HOST}/studies"
TUNE = (
    "experiment=tune_ising", "scale=smoke", "sampler=gibbs", "seed=0", "task.trials=1",
    "model.shape=[3,3]",
)  # fmt: skip
SPELLINGS = {
    "typed": (f"task.storage='{URL}'", [PASSWORD]),
    "an environment variable": ("task.storage=${oc.env:STORE}", [PASSWORD, HOST]),
    "a variable in a text": (
        f"task.storage='postgresql://me:${{oc.env:SECRET}}@{HOST}/studies'", [PASSWORD],
    ),
    "another key": ("+store=${oc.env:STORE} task.storage=${store}", [PASSWORD, HOST]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STORE", URL)
    monkeypatch.setenv("SECRET", PASSWORD)
    monkeypatch.setenv("WANDB_SILENT", "true")
    for key in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(key, str(tmp_path / "wandb_home"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The storages that runs open; the studies are in memory."""
    names: list[str] = []

    def opened(storage: str) -> optuna.storages.BaseStorage:
        names.append(storage)
        return optuna.storages.InMemoryStorage()

    monkeypatch.setattr(study, "open_storage", opened)
    return names


def leaks(folder: Path, secrets: list[str]) -> list[str]:
    """The files below `folder` whose names or contents hold a secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = []
    for file in files:
        whole = str(file.relative_to(folder)).encode() + file.read_bytes()
        if any(secret.encode() in whole for secret in secrets):
            found.append(str(file.relative_to(folder)))
    return found


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_run_uses_a_secret_and_leaves_it_nowhere(
    spelling: str, asked: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a run, as a run that fails, in a sweep, and drawn again."""
    text, secrets = SPELLINGS[spelling]
    words = (*TUNE, *text.split(" "), "logger=tensorboard")
    assert command_line(*words, outputs=tmp_path) == 0
    assert asked == [URL]
    record = only(tmp_path)
    assert record.config["task"]["storage"].startswith(("postgresql://me:", "${oc.env:STORE}"))
    assert command_line(*words, outputs=tmp_path) == 0
    assert asked == [URL], "the record is not found again"
    assert command_line(*words, "budget.every=7", outputs=tmp_path) == 1
    assert command_line(*words, "seed=0,1", "-m", outputs=tmp_path) == 0
    assert asked == [URL] * 2
    assert leaks(tmp_path, secrets) == []
    shown = "".join(capfd.readouterr())
    assert [secret for secret in secrets if secret in shown] == []


@pytest.mark.slow
def test_trackers_get_no_secret(asked: list[str], tmp_path: Path) -> None:
    """W&B stores the configuration and the words of the command."""
    import wandb

    for name, (text, secrets) in SPELLINGS.items():
        words = (*TUNE, *text.split(" "), "logger=wandb", "~figures")
        assert command_line(*words, outputs=tmp_path / name) == 0
        wandb.teardown()
        assert leaks(tmp_path / name, secrets) == []


def test_spellings_of_a_secret_give_one_record(asked: list[str], tmp_path: Path) -> None:
    for text, _ in SPELLINGS.values():
        assert command_line(*TUNE, *text.split(" "), "~figures", outputs=tmp_path) == 0
    assert asked == [URL]


def test_the_value_of_a_variable_is_part_of_a_runs_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number is stored, a text is not; both tell runs apart."""
    tiny = ("model.shape=[2,2]", "scale=smoke")
    for words, values in (
        (("sampler.step_size='${oc.decode:${oc.env:STEP}}'",), ("0.3", "0.6")),
        (("engine=${oc.env:STEP}",), ("eager", "auto")),
    ):
        outputs = tmp_path / words[0].partition("=")[0]
        for value in values:
            monkeypatch.setenv("STEP", value)
            for _ in range(2):
                assert command_line(*tiny, *words, outputs=outputs) == 0
        assert len(list(outputs.rglob("run.json"))) == 2
        assert not (outputs / "superseded").exists()


URLS = {
    "postgresql://me:pw@host/db": "postgresql://me:***@host/db",
    "mysql+pymysql://me:p/w:x@host:3306/db?a=b": "mysql+pymysql://me:***@host:3306/db?a=b",
    "redis://:pw@host:6379/0": "redis://:***@host:6379/0",
    "a=postgresql://me:p@w@host/db,b=1": "a=postgresql://me:***@host/db,b=1",
    "https://host/x?user=me&password=pw&b=1": "https://host/x?user=me&password=***&b=1",
    "https://host/x?Token=pw": "https://host/x?Token=***",
    "postgresql://me@host/db": "postgresql://me@host/db",
    "sqlite:////tmp/study.db": "sqlite:////tmp/study.db",
    "https://host:8080/x": "https://host:8080/x",
    "file://~/a:b/c": "file://~/a:b/c",
    "a:b@c": "a:b@c",
}


@pytest.mark.parametrize("text", URLS)
def test_passwords_in_urls_are_masked_and_nothing_else(text: str) -> None:
    masked = mask_passwords(text)
    assert masked == URLS[text]
    assert mask_passwords(masked) == masked
    digests = {digest({"task": {"storage": each}}) for each in (text, masked)}
    assert len(digests) == 1  # a record has the identity of its run
