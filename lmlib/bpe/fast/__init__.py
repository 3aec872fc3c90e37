"""The same merges and ids in NumPy, for large texts and the three known patterns.

- ``classes``, ``boundaries``: where pre-tokens start, without regular expressions;
- ``word_table``: words as exact integers, and a table of them that grows;
- ``counting``, ``merges``: training, many merges at once;
- ``vocabulary``, ``word_merges``: the tokens, and merging many words at once;
- ``word_ids``, ``encoder``: remembering ids, and putting together those of a text.

What is fast in NumPy is one operation on many words. So text is handled in blocks
of about half a megabyte, and what only concerns few places of a block is done at
those places alone.
"""
