-- Writers of one document take turns before they read it, in whatever process they are. A turn
-- that its writer does not renew is over. Nothing to keep through a crash.
create unlogged table document_turns (
    tenant_id    text not null,
    bank_id      text not null,
    document_id  text not null,
    holder       uuid not null,
    leased_until timestamptz not null,
    primary key (tenant_id, bank_id, document_id)
);

create index document_turns_by_holder on document_turns (holder);

-- The time that a chunk's memories were made with: theirs may have been edited, or be none.
alter table chunks add column mentioned_at timestamptz;
update chunks c set mentioned_at = m.mentioned_at from (
    select bank, document_id, chunk_id, min(mentioned_at) as mentioned_at from memory_units
    where chunk_id is not null group by bank, document_id, chunk_id) m
    where c.bank = m.bank and c.document_id = m.document_id and c.chunk_id = m.chunk_id;

create table document_history (
    bank          bigint not null,
    document_id   text not null,
    place         bigint generated always as identity,
    kind          text not null,
    created_at    timestamptz not null default now(),
    operation_id  uuid,
    fact_id       uuid,
    facts_added   int not null default 0,
    facts_removed int not null default 0,
    observations  jsonb,                       -- {created|updated|removed: {count, ids}}
    primary key (bank, document_id, place),
    foreign key (bank, document_id) references documents on delete cascade
);
