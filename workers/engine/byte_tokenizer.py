"""The tokenizer of the ``tiny:`` models: every byte of a text is a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SPECIAL = ("<s>", "</s>")
"""Begin and end of a sequence: tokens 0 and 1, as the models' configurations say."""

SIZE = len(SPECIAL) + 256
"""How many tokens there are; a smaller vocabulary has no room for them."""


def save(folder: Path) -> None:
    """Write it where ``transformers`` looks for the tokenizer of the model in ``folder``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *_letters()))}
    bare = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.decoder = decoders.ByteLevel()
    first, last = SPECIAL
    wrap: Any = PreTrainedTokenizerFast
    whole = wrap(tokenizer_object=bare, bos_token=first, eos_token=last, clean_up_tokenization_spaces=False)
    whole.save_pretrained(folder)


def _letters() -> list[str]:
    """The letter that ``tokenizers`` has for each byte: itself where it can be printed, else one past Latin-1."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return [chr(byte) if byte in printed else chr(256 + others.index(byte)) for byte in range(256)]
