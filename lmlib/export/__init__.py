"""Models as folders of Hugging Face, which ``transformers`` opens; and back.

A folder holds ``config.json``, ``model.safetensors`` and the files of a tokenizer,
in the layout of a GPT-2 or of a Llama. Nothing here needs ``transformers``, and no
pickle is opened.
"""

from lmlib.export.config_json import (
    from_transformers_config,
    to_transformers_config,
)
from lmlib.export.reading import Loaded, load_hugging_face
from lmlib.export.weights import (
    from_transformers_state_dict,
    to_transformers_state_dict,
)
from lmlib.export.writing import save_hugging_face

__all__ = [
    "Loaded",
    "from_transformers_config",
    "from_transformers_state_dict",
    "load_hugging_face",
    "save_hugging_face",
    "to_transformers_config",
    "to_transformers_state_dict",
]
