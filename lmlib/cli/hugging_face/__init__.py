"""``lmlib export`` and ``lmlib import``: models to Hugging Face's tools, and back.

Each command is a module, with its options as a dataclass and its examples. Both
load torch only once they run.
"""
