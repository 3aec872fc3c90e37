"""The model that a run starts with: of random weights, or of those of another."""

import torch

from lmlib.data.token_file import tokenizer_sha256
from lmlib.export import Loaded, load_model
from lmlib.model import TransformerLM
from lmlib.train.config import TrainConfig
from lmlib.train.dataset import Dataset
from lmlib.train.settings import check_shape

__all__ = ["random_model", "starting_model"]


def random_model(config: TrainConfig) -> TransformerLM:
    """The model with weights that follow from the seed, the same on every rank."""
    generator = torch.Generator().manual_seed(config.seed)
    return TransformerLM(config.model, generator=generator)


def starting_model(config: TrainConfig, data: Dataset) -> TransformerLM:
    """The model with which step 0 begins: that of ``init_from``, or a random one.

    Raises ValueError if the model there has another shape than the config says, or
    another tokenizer than the data, and what ``load_model`` raises.
    """
    model = random_model(config)
    if config.init_from is not None:
        source = load_model(config.init_from)
        check_shape(config.model.to_dict(), source.config, config.init_from)
        _check_ids(data, source, config.init_from)
        model.load_state_dict(source.model.state_dict())
    return model


def _check_ids(data: Dataset, source: Loaded, folder: str) -> None:
    """ValueError if it is known that the data have other ids than the model."""
    if source.tokenizer is None:
        return
    own = tokenizer_sha256(source.tokenizer)
    made_by = {tokens.tokenizer_sha256 for tokens in (data.train, data.validation)}
    if data.tokenizer is not None:
        made_by.add(tokenizer_sha256(data.tokenizer))
    if made_by - {own, None}:
        raise ValueError(
            f"The data were made by another tokenizer than that of the model in "
            f"{folder}, whose weights know no other ids: leave tokenizer out, and "
            "make token files with the model's own."
        )
