"""Models as folders of Hugging Face, which ``transformers`` opens; and back.

A folder holds ``config.json``, ``model.safetensors`` and the files of a tokenizer,
in the layout of a GPT-2 or of a Llama. Nothing here needs ``transformers``, and no
pickle is opened. ``load_trained`` reads what ``lmlib train`` left, and
``load_model`` either of them.
"""

from lmlib.export.config_json import (
    from_transformers_config,
    to_transformers_config,
)
from lmlib.export.loaded import Loaded
from lmlib.export.opening import load_model
from lmlib.export.reading import load_hugging_face
from lmlib.export.trained import Trained, load_trained, save_trained
from lmlib.export.weights import (
    from_transformers_state_dict,
    to_transformers_state_dict,
)
from lmlib.export.writing import save_hugging_face

__all__ = [
    "Loaded",
    "Trained",
    "from_transformers_config",
    "from_transformers_state_dict",
    "load_hugging_face",
    "load_model",
    "load_trained",
    "save_hugging_face",
    "save_trained",
    "to_transformers_config",
    "to_transformers_state_dict",
]
