"""Masked language models of `transformers`: load one, query it, or create a new one.

A checkpoint is a name on the Hugging Face hub, or a folder in the hub's format with safetensors
weights. It needs a masked-language-modelling head. `mini_bert` is a small model that comes with
this project (models/mini_bert). If a checkpoint is not available, mini_bert replaces it, with a
warning.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from latticework.torchvision_ops import ensure_importable

ensure_importable()

from transformers import (  # noqa: E402 - torchvision must be importable first
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
)
from transformers.utils import logging as transformers_logging  # noqa: E402

log = logging.getLogger(__name__)
REVISIONS = {  # commits on the hub, so that a later upload under the name changes no result
    "bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594",
    "bert-large-uncased": "6da4b6a26a1877e173fca3225479512db81a5e5b",
}
EMBEDDED = Path(__file__).resolve().parent / "mini_bert"
_missing: dict[tuple[str, str | None], OSError] = {}  # what could not be downloaded
MASK = "[MASK]"  # a blank in a text; each tokenizer has its own mask token


class MaskedLM(nn.Module):
    """A network, its tokenizer, and the tokens that may fill a blank.

    Args:
        checkpoint: a name on the hub, a folder, or "mini_bert".
        exclude_special: whether to exclude special tokens ([CLS], [UNK] ...) and BERT's
            placeholders ([unused7]) from blanks.
        words: the only tokens that may fill a blank. None allows the whole vocabulary, that is, the
            rows of the embedding table for which the tokenizer has a string (tables are often
            padded).
        download: whether a checkpoint that is not in the hub's cache may be downloaded.
        strict: whether an unavailable checkpoint is an error; otherwise mini_bert replaces it.
        revision: the commit, tag or branch on the hub. None is the commit in REVISIONS, and for
            other names the newest one.

    Attributes:
        name: the checkpoint that is used; `substitute` is True if another one was asked for.
        values: ids of the tokens that may fill a blank, `[values]`.
        embeddings: their input embeddings, `[values, width]`.

    Raises:
        OSError: if the checkpoint is not available and `strict`, or if a folder holds none.
        ValueError: if it has no masked-language-modelling head, no mask token or no embedding of
            it, or if one of `words` is not one of its tokens.
    """

    values: Tensor
    embeddings: Tensor

    def __init__(
        self,
        checkpoint: str,
        exclude_special: bool = True,
        words: Sequence[str] | None = None,
        download: bool = True,
        strict: bool = False,
        revision: str | None = None,
    ) -> None:
        super().__init__()
        self.asked = checkpoint
        revision = revision or REVISIONS.get(checkpoint)
        self.name, self.network, self.tokenizer = _load(checkpoint, download, strict, revision)
        self.substitute = self.name != checkpoint
        if self.tokenizer.mask_token is None:
            raise ValueError(f"{checkpoint} has no mask token: it is not a masked language model")
        self.network.float().eval().requires_grad_(False)
        table = self.network.get_input_embeddings().weight
        if self.tokenizer.mask_token_id >= len(table):
            raise ValueError(
                f"{checkpoint} has {len(table)} embeddings, but its mask token has index "
                f"{self.tokenizer.mask_token_id}: network and tokenizer do not match"
            )
        self.register_buffer("values", self._values(len(table), exclude_special, words))
        self.register_buffer("embeddings", table[self.values].clone(), persistent=False)
        self.register_load_state_dict_post_hook(lambda self, _: self._look_up())

    def _look_up(self) -> None:
        """Take the embeddings from the network, whose weights were loaded."""
        self.embeddings = self.embed(self.values).clone()

    def _values(self, size: int, exclude_special: bool, words: Sequence[str] | None) -> Tensor:
        vocabulary = {word: i for word, i in self.tokenizer.get_vocab().items() if i < size}
        if words is not None:
            if unknown := [word for word in words if word not in vocabulary]:
                raise ValueError(f"no tokens of {self.name}: {', '.join(unknown)}")
            return torch.tensor([vocabulary[word] for word in words])
        allowed = set(vocabulary.values())
        if exclude_special:
            allowed -= {i for word, i in vocabulary.items() if word.startswith("[unused")}
            allowed -= set(self.tokenizer.all_special_ids)
        return torch.tensor(sorted(allowed))

    def tokens(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids `[length]` of a sentence with "[MASK]" at its blanks, and the blanks' places.

        Raises ValueError if the sentence is too long for the network.
        """
        mask = self.tokenizer.mask_token
        text = " ".join(mask if word == MASK else word for word in words)
        ids = torch.tensor(self.tokenizer(text)["input_ids"], device=self.values.device)
        longest = self.network.config.max_position_embeddings
        if len(ids) > longest:
            raise ValueError(
                f"a sentence must have at most {longest} tokens for {self.name}, "
                f"got {len(ids)}: {text}"
            )
        return ids, (ids == self.tokenizer.mask_token_id).nonzero().squeeze(1)

    def embed(self, ids: Tensor) -> Tensor:
        """Input embeddings, `[...] -> [..., width]`."""
        return self.network.get_input_embeddings()(ids)

    def log_probs(self, embedded: Tensor, pick: Callable[[Tensor], Tensor]) -> Tensor:
        """Log-probabilities of `values` at the places that `pick` chooses.

        They are normalised over the whole vocabulary. `embedded` are sequences `[n, length,
        width]`. `pick` reduces the last hidden states `[n, length, hidden]` to `[..., hidden]`,
        because the head is costly. The result has the shape `[..., values]`.
        """

        def keep(module: nn.Module, given: Any, output: Any) -> Any:
            output.last_hidden_state = pick(output.last_hidden_state)
            return output

        handle = self.network.base_model.register_forward_hook(keep)
        try:
            logits = self.network(inputs_embeds=embedded).logits
        finally:
            handle.remove()
        normaliser = logits.logsumexp(-1, keepdim=True)
        if len(self.values) < logits.shape[-1]:
            logits = logits.index_select(-1, self.values)
        return logits - normaliser

    def words(self, index: Tensor) -> list[list[str]]:
        """The tokens at `index` `[chains, n]` of `values`. A word piece is written `##ing`."""
        rows = []
        for numbers in self.values[index].tolist():
            pieces = self.tokenizer.convert_ids_to_tokens(numbers)
            rows.append([piece.lstrip("Ġ▁") or piece for piece in pieces])
        return rows


def _load(
    checkpoint: str, download: bool, strict: bool, revision: str | None
) -> tuple[str, Any, Any]:
    """The name of the checkpoint that is used, its network and its tokenizer."""
    folder = EMBEDDED if checkpoint == "mini_bert" else Path(checkpoint).expanduser()
    if folder.is_dir():
        return checkpoint, *_read_model(str(folder), local=True)
    if folder.is_absolute() or checkpoint.startswith("."):
        raise FileNotFoundError(f"a checkpoint must be a folder or a name on the hub, got {folder}")
    try:
        return checkpoint, *_from_hub(checkpoint, download, revision)
    except OSError as error:
        if strict:
            raise
        reason = str(error).strip().splitlines()[0]
        edge = "#" * 88
        log.warning(
            "\n%s\n## SUBSTITUTE MODEL: THIS IS NOT %s\n## used:  mini_bert, the small model of "
            "this project\n## why:   %s\n## Do not compare its results with published "
            "numbers.\n## model.language.strict=true makes this an error.\n%s",
            *(edge, checkpoint.upper(), reason, edge),
        )
        return "mini_bert", *_read_model(str(EMBEDDED), local=True)


def _from_hub(checkpoint: str, download: bool, revision: str | None) -> tuple[Any, Any]:
    """Network and tokenizer from the hub's cache, else from the hub; a failure is tried once."""
    try:
        return _read_model(checkpoint, local=True, revision=revision)
    except OSError:
        if not download:
            raise
    if (checkpoint, revision) in _missing:
        raise _missing[checkpoint, revision]
    try:
        log.info("downloading %s from the hub", checkpoint)
        return _read_model(checkpoint, local=False, revision=revision)
    except OSError as error:
        _missing[checkpoint, revision] = error
        raise


def _read_model(source: str, local: bool, revision: str | None = None) -> tuple[Any, Any]:
    transformers_logging.disable_progress_bar()
    where = {"local_files_only": local, "revision": revision or "main"}
    tokenizer = AutoTokenizer.from_pretrained(source, **where)
    network, report = AutoModelForMaskedLM.from_pretrained(
        source, use_safetensors=True, output_loading_info=True, **where
    )
    if missing := sorted(report["missing_keys"]):
        raise ValueError(
            f"{source} lacks weights of a masked language model: {', '.join(missing[:4])} ..."
        )
    return network, tokenizer


def untrained(
    vocabulary: int, hidden: int, layers: int, heads: int, positions: int
) -> BertForMaskedLM:
    """A BERT with random weights, of `layers` layers of width `hidden`, without dropout.

    `positions` is the longest sequence in tokens.
    """
    return BertForMaskedLM(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            max_position_embeddings=positions,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
