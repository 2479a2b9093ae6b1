"""Text infilling as a target: loading, energy, gradient, conditionals, and the samplers on it."""

import logging
import re

import pytest
import torch
from exactness import p_value

import latticework as lw
from latticework.experiments.tasks.text_infilling import from_blanks
from latticework.models import masked_lm
from latticework.models.masked_lm import untrained
from latticework.sampling.checking.host_reads import NoHostReads
from workshop.mini_bert.word_pieces import learn_vocabulary

SENTENCES = [
    "the cat sat on the mat .", "a dog and a cat ran !", "the dogs were running on mats .",
    "she said that the cat was sitting there .", "he ran ; the dog sat ?",
]  # fmt: skip
TEXT = "The [MASK] sat on [MASK] [MASK]."
WORDS = ["the", "[MASK]", "sat", "on", "[MASK]", "[MASK]", "."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint in the hub's own format, with random weights and 90 tokens."""
    path = tmp_path_factory.mktemp("checkpoint")
    vocabulary = learn_vocabulary(SENTENCES * 3, 90)
    (path / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    network = untrained(len(vocabulary), hidden=16, layers=2, heads=2, positions=20)
    for parameter in network.parameters():  # a default BERT is nearly uniform
        parameter.data.mul_(6)
    network.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def language(folder):
    return lw.MaskedLM(str(folder))


def states(model, chains=3):
    return model.domain.uniform(chains, torch.Generator().manual_seed(1))


def test_a_checkpoint_folder_is_loaded_with_its_vocabulary(language, folder):
    assert (language.name, language.substitute) == (str(folder), False)
    ids, places = language.tokens(["the", "cat", "[MASK]", "."])
    words = language.tokenizer.convert_ids_to_tokens(ids.tolist())
    assert words == ["[CLS]", "the", "cat", "[MASK]", ".", "[SEP]"]
    assert places.tolist() == [3]
    assert not any(parameter.requires_grad for parameter in language.parameters())
    with pytest.raises(ValueError, match="at most 20 tokens"):
        language.tokens(["cat"] * 30)


def test_a_name_that_cannot_be_had_is_replaced_out_loud(caplog):
    with caplog.at_level(logging.WARNING):
        language = lw.MaskedLM("nobody/no-such-bert", download=False)
    assert (language.asked, language.name) == ("nobody/no-such-bert", "mini_bert")
    assert language.substitute
    assert "THIS IS NOT NOBODY/NO-SUCH-BERT" in caplog.text
    with pytest.raises(OSError, match="couldn't connect"):
        lw.MaskedLM("nobody/no-such-bert", download=False, strict=True)


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-large-uncased", "nobody/bert"])
@pytest.mark.parametrize("revision", [None, "v1"])
def test_a_name_of_the_hub_is_read_at_its_commit(name, revision, monkeypatch):
    """Whether the cache holds it or it is downloaded; the network and its tokenizer."""
    asked = []

    def read(source, **settings):
        asked.append((source, settings["revision"], settings["local_files_only"]))
        raise OSError("not there")

    monkeypatch.setattr(masked_lm.AutoTokenizer, "from_pretrained", read)
    monkeypatch.setattr(masked_lm, "_missing", {})
    with pytest.raises(OSError, match="not there"):
        lw.MaskedLM(name, strict=True, revision=revision)
    wanted = revision or masked_lm.REVISIONS.get(name, "main")
    assert asked == [(name, wanted, True), (name, wanted, False)]
    assert revision or name == "nobody/bert" or re.fullmatch("[0-9a-f]{40}", wanted)
    monkeypatch.setattr(masked_lm.AutoTokenizer, "from_pretrained", lambda *_, **__: None)
    monkeypatch.setattr(masked_lm.AutoModelForMaskedLM, "from_pretrained", read)
    with pytest.raises(OSError, match="not there"):
        lw.MaskedLM(name, strict=True, download=False, revision=revision)
    assert asked[-1] == (name, wanted, True)


def test_rows_of_the_table_without_a_token_fill_no_blank(folder, tmp_path):
    """Tables padded by 6 rows, to which the network is biased."""
    language = lw.MaskedLM(str(folder))
    size = len(language.tokenizer)
    language.network.resize_token_embeddings(size + 6, mean_resizing=False)
    language.network.get_output_embeddings().bias.data[size:] = 20.0
    language.network.save_pretrained(tmp_path)
    language.tokenizer.save_pretrained(tmp_path)
    assert lw.MaskedLM(str(tmp_path)).values.tolist() == language.values.tolist()
    found = lw.MaskedLM(str(tmp_path), exclude_special=False)
    assert found.values.tolist() == list(range(size))
    model, rng = lw.TextInfilling(found, TEXT), torch.Generator().manual_seed(0)
    state = lw.DULA(1.0).init(states(model, 8), model)
    for _ in range(3):
        state, _ = lw.DULA(1.0).step(state, model, rng)
    assert all(isinstance(word, str) for words in model.words(state.x) for word in words)
    assert torch.allclose(model(state.x), by_loop(model, state.x), atol=1e-4)


def test_a_table_smaller_than_the_tokenizer_serves_with_the_tokens_it_has(folder, tmp_path):
    language = lw.MaskedLM(str(folder))
    size = len(language.tokenizer)
    language.network.resize_token_embeddings(size - 7)
    language.network.save_pretrained(tmp_path)
    language.tokenizer.save_pretrained(tmp_path)
    fewer = lw.MaskedLM(str(tmp_path))
    assert fewer.values.tolist() == [i for i in language.values.tolist() if i < size - 7]
    gone = language.tokenizer.convert_ids_to_tokens(size - 1)
    with pytest.raises(ValueError, match=f"no tokens of .*: {gone}"):
        lw.MaskedLM(str(tmp_path), words=[gone])
    language.network.resize_token_embeddings(3)  # [MASK] is the fifth
    language.network.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="network and tokenizer do not match"):
        lw.MaskedLM(str(tmp_path))


def by_loop(model, x, masked=True):
    """U, one masked copy after the other, through the network's own interface and whole logits."""
    language, total = model.language, []
    mask = language.tokenizer.mask_token_id
    template, places = language.tokens(WORDS)
    for row in language.values[x.argmax(-1)]:
        value = 0.0
        for site, place in enumerate(places):
            ids = template.clone()
            ids[places] = row
            if masked:
                ids[place] = mask
            logits = language.network(input_ids=ids.unsqueeze(0)).logits[0, place]
            value += float(logits.log_softmax(-1)[row[site]])
        total.append(value)
    return torch.tensor(total)


@pytest.mark.parametrize("mask_each", [True, False])
def test_the_energy_is_that_of_a_loop_over_copies(language, mask_each):
    model = lw.TextInfilling(language, TEXT, mask_each=mask_each, batch=4)
    x = states(model, 5)
    assert torch.allclose(model(x), by_loop(model, x, mask_each), atol=1e-4)
    other = lw.TextInfilling(language, TEXT, mask_each=not mask_each)
    assert not torch.allclose(other(x), model(x), atol=1e-2)  # control
    assert torch.allclose(model.log_likelihood(x), by_loop(model, x), atol=1e-4)


@pytest.mark.parametrize("mask_each", [True, False])
def test_the_gradient_over_the_vocabulary_is_that_of_finite_differences(folder, mask_each):
    model = lw.TextInfilling(lw.MaskedLM(str(folder)), TEXT, mask_each=mask_each, batch=4).double()
    x = states(model, 2).double()
    log_prob, grad = model.log_prob_and_grad(x)
    assert torch.allclose(log_prob, model(x))
    rng, step = torch.Generator().manual_seed(0), 1e-5
    for _ in range(5):
        along = torch.randn(x.shape, generator=rng, dtype=torch.float64)
        slope = (model(x + step * along) - model(x - step * along)) / (2 * step)
        assert torch.allclose((grad * along).sum((1, 2)), slope, atol=1e-6)
    direct = model.log_probs(x)  # without what the words do to one another's contexts
    assert not torch.allclose(grad, direct, atol=1e-2)


def test_given_turns_to_another_sentence(language):
    model = lw.TextInfilling(language, TEXT, mask_each=False, gibbs="exact", batch=7)
    sentence = ("the", "dogs", "were", "running", ".")
    other = model.with_blanks(sentence, (1, 3))
    assert other.domain.shape == (2, len(language.values))
    assert (other.mask_each, other.gibbs, other.batch) == (False, "exact", 7)
    assert other.language is language
    again = other.with_blanks(WORDS, [i for i, word in enumerate(WORDS) if word == "[MASK]"])
    x = states(model)
    assert torch.equal(again(x), model(x))


def test_special_tokens_are_never_proposed(language, folder):
    special = set(language.tokenizer.all_special_ids)
    assert len(special) == 5
    assert not special & set(language.values.tolist())
    assert len(language.values) == len(language.tokenizer) - 5
    everything = lw.MaskedLM(str(folder), exclude_special=False)
    assert special < set(everything.values.tolist())  # control
    some = lw.MaskedLM(str(folder), words=["cat", "dog", "mat"])
    model = lw.TextInfilling(some, TEXT)
    assert {word for row in model.words(states(model, 50)) for word in row} == {"cat", "dog", "mat"}
    with pytest.raises(ValueError, match="no tokens of .*: zebra"):
        lw.MaskedLM(str(folder), words=["cat", "zebra"])


def test_gibbs_draws_from_the_masked_law_or_from_the_exact_conditional(folder):
    some = lw.MaskedLM(str(folder), words=["cat", "dog", "mat", "sat", "ran", "there"])
    model = lw.TextInfilling(some, TEXT)
    x, site = states(model, 4), torch.tensor([1])
    assert torch.allclose(model.site_log_probs(x, (), site), model.log_probs(x)[:, 1], atol=1e-5)
    exact = lw.TextInfilling(some, TEXT, gibbs="exact").site_log_probs(x, (), site)
    for value in range(6):
        y = x.clone()
        y[:, 1] = torch.eye(6)[value]
        assert torch.allclose(exact[:, value], model(y), atol=1e-4)
    assert not torch.allclose(
        exact.softmax(-1), model.log_probs(x)[:, 1].softmax(-1), atol=1e-2
    )  # control: the two laws differ


@pytest.mark.parametrize(
    ("sampler", "exact"),
    [(lw.DMALA(2.0), True), (lw.Gibbs(), True), (lw.DULA(9.0), False)],
    ids=repr,
)
def test_exact_samplers_leave_the_target_invariant(folder, sampler, exact):
    """From exact draws over 16 states: a chi-square test. Nothing is read on the host."""
    some = lw.MaskedLM(str(folder), words=["cat", "dog", "mat", "there"])
    model = lw.TextInfilling(some, "the [MASK] sat on the [MASK] .", gibbs="exact")
    every = model.domain.enumerate()
    law = model(every).double().softmax(0)
    rng, draws = torch.Generator().manual_seed(0), 1500
    x = every[torch.multinomial(law, draws, replacement=True, generator=rng)]
    state = sampler.init(x, model)
    for _ in range(3):
        with NoHostReads():
            state, _ = sampler.step(state, model, rng)
        model.domain.check(state.x)
    counts = torch.bincount(state.x.argmax(-1) @ torch.tensor([4, 1]), minlength=16).numpy()
    assert (p_value(counts, law.numpy()) > 1e-6) == exact


def test_the_start_is_drawn_from_the_model_with_all_blanks_masked(language):
    model = lw.TextInfilling(language, TEXT)
    law = model.blank_log_probs().softmax(-1)
    drawn = from_blanks(model, 4000, torch.Generator().manual_seed(0), None)
    z = (drawn.mean(0) - law) / (law * (1 - law) / 4000).sqrt()
    assert z.abs().max() < 5
    uniform = torch.full_like(law, 1 / law.shape[-1])
    off = (drawn.mean(0) - uniform) / (uniform * (1 - uniform) / 4000).sqrt()
    assert off.abs().max() > 5  # control
