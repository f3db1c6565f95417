"""Mental models and the knowledge base: documents that a bank keeps about what it knows.

    trigger → what changed in scope? → a recall decides → full text or edits of blocks → checked →
    stored

A refresh is an operation: it reads, asks and checks without a lock, and ends in one transaction.
Its language model decides what is said; what may count as evidence, what stays as it is and what
becomes of a refresh that fails are decided here."""
