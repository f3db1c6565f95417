"""Reflect: an answer to a question out of a bank's memories, each sentence of it with its evidence.

    query -> three searches -> loop of calls and tools -> draft -> checked against what was shown

The language model decides what is looked for and how it is said. What may be looked for, what
counts as evidence and when it has to end are decided here.
"""
