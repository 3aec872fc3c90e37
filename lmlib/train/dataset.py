"""From what a config names, text or tokens, to tokens to train and validate on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from lmlib.bpe import Tokenizer, train_bpe
from lmlib.bpe.formats.gpt2 import read_json_object
from lmlib.corpora import load_corpus
from lmlib.data import TokenFile, open_tokens, prepare_tokens
from lmlib.data.prepare import END_OF_TEXT
from lmlib.distributed import World, on_main
from lmlib.files import write_atomically
from lmlib.hardware.devices import get_device
from lmlib.train.config import CORPORA, TOKENS, TrainConfig
from lmlib.train.run_folder import RunFolder

__all__ = ["Dataset", "byte_tokenizer", "open_dataset"]


@dataclass(frozen=True)
class Dataset:
    """Tokens to train on and to validate with, and what makes text of them."""

    train: TokenFile
    validation: TokenFile
    tokenizer: Tokenizer | None

    @property
    def vocab_size(self) -> int | None:
        """Ids that there can be; None if nothing says so."""
        if self.tokenizer is not None:
            return self.tokenizer.vocab_size
        return self.train.vocab_size

    def with_vocab_size(self, vocab_size: int) -> Self:
        """The same for a model of ``vocab_size`` ids, to which batches are held.

        Raises ValueError if the tokens or the tokenizer have more.
        """
        known = self.vocab_size
        if known is not None and known > vocab_size:
            raise ValueError(
                f"The data have {known:,} ids, and the model {vocab_size:,}: make "
                f"its vocab_size {known} or more, or use the tokenizer that the "
                "model was made for."
            )
        train, validation = (
            replace(tokens, vocab_size=vocab_size)
            if tokens.vocab_size is None
            else tokens
            for tokens in (self.train, self.validation)
        )
        return replace(self, train=train, validation=validation)


def open_dataset(
    config: TrainConfig,
    path: str | Path,
    world: World | None = None,
    *,
    vocab_size: int | None = None,
    progress: bool = False,
) -> Dataset:
    """Open the tokens of a run, made of its text first if they are not there yet.

    Rank 0 makes them, in the run's folder, which keeps the tokenizer too.
    ``vocab_size`` is that of a tokenizer to be trained.

    Raises ValueError for what does not go together, such as texts beside a token
    file, or other texts than the tokens there were made of; and OSError for what
    cannot be read.
    """
    world = world or World(get_device(config.device))
    folder = RunFolder(Path(path))
    on_main(world, _prepare, config, folder, vocab_size, progress)
    tokenizer = None
    if folder.tokenizer.exists():
        tokenizer = Tokenizer.from_pretrained(folder.tokenizer)
    train = open_tokens(_token_file(config.data, folder, "train"))
    if config.validation_data:
        validation = open_tokens(
            _token_file(config.validation_data, folder, "validation")
        )
    else:
        train, validation = train.split(config.validation_share)
    if tokenizer is not None:
        for tokens in (train, validation):
            tokens.check_tokenizer(tokenizer)
    return Dataset(train, validation, tokenizer)


def byte_tokenizer() -> Tokenizer:
    """The tokenizer without merges: each byte is a token, and the end of a text."""
    vocab = {byte: bytes([byte]) for byte in range(256)}
    return Tokenizer(vocab, [], [END_OF_TEXT])


# --- making tokens ------------------------------------------------------------

_SETTINGS = {
    "train": "data",
    "validation": "validation_data",
}  # where they come from


def _prepare(
    config: TrainConfig, folder: RunFolder, vocab_size: int | None, progress: bool
) -> None:
    """Write the tokenizer and the token files that the run lacks."""
    folder.path.mkdir(parents=True, exist_ok=True)
    texts = {
        split: sources
        for split, name in _SETTINGS.items()
        if (sources := getattr(config, name)) and not _are_tokens(split, sources)
    }
    if folder.tokenizer.exists():
        _check_origin(folder, "tokenizer", config.tokenizer)
        if config.tokenizer == "train" and vocab_size is not None:
            _check_origin(folder, "vocab_size", vocab_size)
    else:
        tokenizer = _tokenizer(config, folder, texts, vocab_size, progress)
        if tokenizer is not None:
            tokenizer.save(folder.tokenizer)
            made = {"tokenizer": config.tokenizer, "vocab_size": vocab_size}
            _add_origin(folder, made)
    for split, sources in texts.items():
        out = _token_file(sources, folder, split)
        if out.exists():
            _check_origin(folder, _SETTINGS[split], list(sources))
        else:
            tokenizer = Tokenizer.from_pretrained(folder.tokenizer)
            files = _text_files(sources, folder)
            prepare_tokens(files, tokenizer, out, progress=progress)
            _add_origin(folder, {_SETTINGS[split]: list(sources)})


def _origin(folder: RunFolder) -> dict[str, Any]:
    if not folder.origin.exists():
        return {}
    return read_json_object(folder.origin)


def _add_origin(folder: RunFolder, made: dict[str, Any]) -> None:
    """Write down what was made of what."""
    text = json.dumps(_origin(folder) | made, indent=2)
    write_atomically(folder.origin, text + "\n")


def _check_origin(folder: RunFolder, name: str, value: object) -> None:
    """ValueError if what is there was made of something else."""
    before = _origin(folder).get(name, value)
    if before != value:
        raise ValueError(
            f"The tokens in {folder.path} were made with {name} = {before!r}, not "
            f"{value!r}: keep it, or name another folder."
        )


def _tokenizer(
    config: TrainConfig,
    folder: RunFolder,
    texts: dict[str, Sequence[str]],
    vocab_size: int | None,
    progress: bool,
) -> Tokenizer | None:
    """Return the tokenizer that the config names; None for tokens without one."""
    if config.tokenizer == "bytes":
        return byte_tokenizer()
    if config.tokenizer != "train":
        return Tokenizer.from_pretrained(config.tokenizer)
    if texts and config.init_from is not None:
        raise ValueError(
            "The weights of init_from know the ids of one tokenizer alone: name "
            "it as tokenizer, instead of having another trained."
        )
    if "train" not in texts:
        if texts:
            raise ValueError(
                "validation_data is text and data are tokens: name the tokenizer "
                "that made these."
            )
        return None
    if vocab_size is None:
        raise ValueError(
            "A tokenizer is to be trained: say how many tokens it shall have, such "
            "as vocab_size = 4096, or name one."
        )
    files = _text_files(texts["train"], folder)
    vocab, merges = train_bpe(files, vocab_size, [END_OF_TEXT], progress=progress)
    return Tokenizer(vocab, merges, [END_OF_TEXT])


def _are_tokens(split: str, sources: Sequence[str]) -> bool:
    """Whether the sources are a token file; ValueError if one of several is."""
    tokens = [source for source in sources if source.endswith(TOKENS)]
    if tokens and len(sources) > 1:
        raise ValueError(
            f"{_SETTINGS[split]} names {tokens[0]} and {len(sources) - 1} other "
            "files: give one token file, or text files."
        )
    return bool(tokens)


def _token_file(sources: Sequence[str], folder: RunFolder, split: str) -> Path:
    if sources[0].endswith(TOKENS):
        return Path(sources[0])
    return folder.tokens / f"{split}{TOKENS}"


def _text_files(sources: Sequence[str], folder: RunFolder) -> list[Path]:
    """Return the files of the sources; texts of lmlib are written to the folder."""
    folder.tokens.mkdir(parents=True, exist_ok=True)
    files = []
    for source in sources:
        if source in CORPORA:
            path = folder.tokens / f"{source}.txt"
            write_atomically(path, load_corpus(source))
        else:
            path = Path(source)
            open(path, "rb").close()  # here, before time is spent
        files.append(path)
    return files
