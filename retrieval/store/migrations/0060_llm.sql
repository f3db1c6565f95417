-- What language models were asked: sums for ever, texts for days and only where wanted.

-- A tenant's tokens of a day: used, and set aside for calls that run.
create table llm_budgets (
    tenant_id text not null,
    day       date not null,
    used      bigint not null default 0,
    reserved  bigint not null default 0,
    primary key (tenant_id, day)
);

create table llm_usage (
    tenant_id text not null,
    day       date not null,
    bank_id   text not null,
    operation text not null,
    model     text not null,
    calls     bigint not null default 0,
    failed    bigint not null default 0,
    requests  bigint not null default 0,
    input_tokens    bigint not null default 0,
    output_tokens   bigint not null default 0,
    cached_tokens   bigint not null default 0,
    thoughts_tokens bigint not null default 0,
    primary key (tenant_id, day, bank_id, operation, model)
);

create table llm_requests (
    id          uuid primary key,
    tenant_id   text not null,
    bank_id     text not null,
    operation   text not null,
    scope       text not null default '',
    trace_id    text not null default '',
    document_id text,
    provider    text not null,
    model       text not null,
    status      text not null check (status in ('success', 'error')),
    error       text,
    started_at  timestamptz not null,
    duration_ms int not null,
    requests    int not null,
    input_tokens    int not null,
    output_tokens   int not null,
    cached_tokens   int not null,
    thoughts_tokens int not null,
    input       jsonb,
    output      text
);
create index llm_requests_by_bank on llm_requests (tenant_id, bank_id, started_at desc);
create index llm_requests_by_age on llm_requests (started_at);

-- Good extractions, so that no chunk is paid for twice: kept for days, gone with their bank.
create table extraction_ledger (
    tenant_id   text not null,
    bank_id     text not null,             -- by name: the bank may only come to be by this content
    key         bytea not null,            -- sha256 of everything that the answer depends on
    document_id text,
    facts       jsonb not null,
    created_at  timestamptz not null default now(),
    primary key (tenant_id, bank_id, key)
);
create index extraction_ledger_by_age on extraction_ledger (created_at);
create index extraction_ledger_by_document on extraction_ledger (tenant_id, bank_id, document_id);

-- Texts of a bank go with it, also where they are not tied to its row.
create function forget_llm_texts() returns trigger language plpgsql as $$
begin
    delete from llm_requests where tenant_id = old.tenant_id and bank_id = old.bank_id;
    delete from extraction_ledger where tenant_id = old.tenant_id and bank_id = old.bank_id;
    return old;
end $$;
create trigger banks_forget_llm_texts after delete on banks
    for each row execute function forget_llm_texts();
