"""Byte-pair encoding, equal to tiktoken for every string; imports without torch.

So far it holds ``unicode_table``: the character classes that patterns are made of.
"""
