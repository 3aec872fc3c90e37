"""The library behind *Counting Tokens, Bytes and FLOPs*.

Import the module you need, such as ``lmlib.tensors``.
"""

__version__ = "0.1.0"
