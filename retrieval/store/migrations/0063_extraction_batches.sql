-- Batches of questions that a provider of language models has, on behalf of an operation. Not tied to
-- it: one whose operation was cancelled or deleted has to be stopped there.
create table extraction_batches (
    mark         uuid primary key,         -- the provider knows the batch by it
    tenant_id    text not null,
    bank_id      text not null,
    operation_id uuid not null,
    account      text not null,            -- where it was sent
    batch_id     text,                     -- null until the provider has named it
    keys         bytea[] not null,         -- of the ledger, one per question
    ended        boolean not null default false,  -- its answers are in the ledger
    created_at   timestamptz not null default now()
);
create index extraction_batches_by_operation
    on extraction_batches (tenant_id, bank_id, operation_id);
