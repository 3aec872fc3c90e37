"""Byte-pair encoding, equal to tiktoken for every string; imports without torch.

So far it holds the two lower floors. Import what you need from its module:

- ``patterns``: the pre-token patterns of GPT-2, cl100k and o200k;
- ``unicode_table``: the character classes that patterns are made of;
- ``reference``: training and encoding in the most obvious way, which is slow;
- ``train``: the same merges, from the counts of pre-tokens, much faster;
- ``encode``: the same ids for one pre-token, much faster, however long it is;
- ``cache``: the ids of pre-tokens seen before, in bounded memory;
- ``formats``: GPT-2's own file of merges;
- ``baselines``: character, byte and word tokenizers, to compare with.

Not here yet: the public ``train_bpe`` and ``Tokenizer``, which choose between
these ways, fast counting of pre-tokens, and the NumPy layer for large texts.
"""
