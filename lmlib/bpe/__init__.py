"""Byte-pair encoding, equal to tiktoken for every string; imports without torch.

So far it holds the ground floor. Import what you need from its module:

- ``patterns``: the pre-token patterns of GPT-2, cl100k and o200k;
- ``unicode_table``: the character classes that patterns are made of;
- ``reference``: training and encoding in the most obvious way, which is slow;
- ``formats``: GPT-2's own file of merges;
- ``baselines``: character, byte and word tokenizers, to compare with.

Not here yet: the public ``train_bpe`` and ``Tokenizer``, and the layers that
make them fast.
"""
