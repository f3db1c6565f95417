-- Every table but tenants, api_keys, banks and schema_migrations has `bank` first in its key, so
-- that it can be distributed by bank. Ordinals are given under the lock of the bank's row, in
-- commit order; that row's version rises with every committed write.

create extension if not exists pg_trgm with schema public;
create extension if not exists btree_gin with schema public;  -- (bank, trigrams) in one index

create table tenants (
    tenant_id  text primary key,
    limits     jsonb not null default '{}',
    created_at timestamptz not null default now()
);
insert into tenants (tenant_id) values ('default');

create table api_keys (
    key_hash   bytea primary key,              -- sha256 of the key; the key itself is never stored
    tenant_id  text not null references tenants on delete cascade,
    label      text not null default '',
    created_at timestamptz not null default now(),
    revoked_at timestamptz
);

create table banks (
    bank         bigint generated always as identity primary key,
    tenant_id    text not null,
    bank_id      text not null,
    name         text not null,
    mission      text not null default '',
    disposition  jsonb not null default '{"skepticism": 3, "literalism": 3, "empathy": 3}',
    config       jsonb not null default '{}',  -- overrides, field form
    version      bigint not null default 0,    -- rises with every committed write
    generation   int not null default 0,       -- rises when ordinals are given anew (compaction)
    next_ordinal int not null default 0,
    next_entity  int not null default 0,
    next_tag     int not null default 0,
    next_document int not null default 0,
    vector_set   text not null default '',     -- '<model id>:<dimension>' the vectors come from
    analyser     text not null default '',     -- version of the analyser the postings come from
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    last_write_at timestamptz,
    last_document_at timestamptz,
    unique (tenant_id, bank_id)
);
create index banks_by_write on banks (last_write_at);  -- upkeep follows the writes

create table documents (
    bank          bigint not null references banks on delete cascade,
    document_id   text not null,
    document_no   int not null,                -- dense number used in the columns segment
    original_text text,
    content_hash  text,
    tags          text[] not null default '{}',
    metadata      jsonb not null default '{}',
    retain_params jsonb not null default '{}',
    observation_scopes jsonb,
    next_position int not null default 0,      -- where the next imported memory goes
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    primary key (bank, document_id),
    unique (bank, document_no)
);

create table chunks (
    bank         bigint not null,
    chunk_id     text not null,                -- <bank_id>_<document_id>_<index>
    document_id  text not null,
    chunk_index  int not null,
    chunk_text   text not null,
    content_hash text not null,
    created_at   timestamptz not null default now(),
    primary key (bank, document_id, chunk_index),
    unique (bank, chunk_id),
    foreign key (bank, document_id) references documents on delete cascade
);
create index chunks_by_id on chunks (chunk_id);

create table memory_units (
    bank           bigint not null references banks on delete cascade,
    id             uuid not null,
    ordinal        int,                        -- null: invalidated, out of every arm
    key            text,                       -- the importer's own id
    text           text not null,
    fact_type      smallint not null,          -- retrieval.types.FactType
    context        text,
    occurred_start timestamptz,
    occurred_end   timestamptz,
    mentioned_at   timestamptz,
    document_id    text,
    chunk_id       text,
    position       int not null default 0,     -- order inside its document
    tags           text[] not null default '{}',
    metadata       jsonb,
    proof_count    int,
    source_ids     uuid[] not null default '{}',
    observation_scopes jsonb,
    text_signals   text,                       -- entity names and readable dates, keyword arm only
    token_count    int not null,               -- cl100k tokens of text
    consolidated_at timestamptz,
    consolidation_failed_at timestamptz,
    invalidation_reason text,
    invalidated_at timestamptz,
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now(),
    edited_at      timestamptz,
    primary key (bank, id),
    unique (bank, ordinal),
    unique (bank, key)
);
create index memory_units_by_document on memory_units (bank, document_id);
create index memory_units_by_mention on memory_units (bank, mentioned_at desc nulls last, created_at desc);
create index memory_units_by_source on memory_units using gin (source_ids) where source_ids <> '{}';

create table entities (
    bank           bigint not null references banks on delete cascade,
    entity_no      int not null,               -- dense number used in the columns segment
    id             uuid not null,
    canonical_name text not null,
    name_key       text not null,              -- lower(canonical_name), by the database
    kind           text not null default 'regular',
    metadata       jsonb not null default '{}',
    first_seen     timestamptz,
    last_seen      timestamptz,
    mention_count  int not null default 0,
    merged_into    int,                        -- entity_no of the survivor of a merge
    version        bigint not null,            -- the bank's version that last changed this row
    primary key (bank, entity_no),
    unique (bank, name_key),
    unique (bank, id)
);
create index entities_by_trigram on entities using gin (bank, name_key gin_trgm_ops);
create index entities_by_version on entities (bank, version);

-- Other names that led to an entity: by evidence, by a merge, or by both spellings in one text.
create table entity_aliases (
    bank      bigint not null,
    name_key  text not null,
    entity_no int not null,
    primary key (bank, name_key, entity_no),
    foreign key (bank, entity_no) references entities on delete cascade
);
create index entity_aliases_by_entity on entity_aliases (bank, entity_no);

create table unit_entities (
    bank      bigint not null,
    unit_id   uuid not null,
    entity_no int not null,
    mention   text not null,                   -- the name as it was given
    primary key (bank, unit_id, entity_no),
    foreign key (bank, unit_id) references memory_units on delete cascade
);
create index unit_entities_by_entity on unit_entities (bank, entity_no);

create table entity_cooccurrences (
    bank     bigint not null references banks on delete cascade,
    a        int not null,
    b        int not null,
    count    int not null default 0,
    last_cooccurred timestamptz,
    primary key (bank, a, b),
    check (a < b)
);

-- Earlier states of an observation. No reference to its row: an update replaces that.
create table observation_history (
    bank           bigint not null references banks on delete cascade,
    observation_id uuid not null,
    changed_at     timestamptz not null default now(),
    content        jsonb not null,
    primary key (bank, observation_id, changed_at)
);

-- Links that somebody stated: causal ones and imported ones. Semantic links lie packed in
-- segments; temporal and sequence neighbours follow from the columns.
create table links (
    bank       bigint not null,
    from_id    uuid not null,
    to_id      uuid not null,
    type       smallint not null,              -- retrieval.types.LinkType
    weight     real not null check (weight between 0 and 1),
    created_at timestamptz not null default now(),
    primary key (bank, from_id, to_id, type),
    foreign key (bank, from_id) references memory_units on delete cascade,
    foreign key (bank, to_id) references memory_units on delete cascade
);
create index links_by_target on links (bank, to_id);

create table tags (
    bank   bigint not null references banks on delete cascade,
    tag_no int not null,                       -- dense number used in the columns segment
    tag    text not null,
    version bigint not null,                   -- of the write that first used it
    primary key (bank, tag_no),
    unique (bank, tag)
);

-- What replicas load: one row per write and kind, merged in the background.
-- kind: 'columns', 'links', 'vectors:<vector set>', 'postings:<analyser>'.
create table segments (
    bank          bigint not null references banks on delete cascade,
    kind          text not null,
    first_ordinal int not null,
    count         int not null,
    version       bigint not null,             -- of the newest write inside
    payload       bytea not null,
    primary key (bank, kind, first_ordinal)
);
alter table segments alter column payload set storage external;

create table tombstones (
    bank    bigint not null references banks on delete cascade,
    ordinal int not null,
    version bigint not null,
    primary key (bank, ordinal)
);
create index tombstones_by_version on tombstones (bank, version);

create table operations (
    operation_id  uuid primary key,
    bank          bigint not null references banks on delete cascade,
    type          text not null,
    status        text not null default 'pending',
    payload       jsonb not null default '{}',
    result_metadata jsonb,
    progress      jsonb,
    items_count   int not null default 0,
    document_id   text,
    error_message text,
    retry_count   int not null default 0,
    next_retry_at timestamptz,
    lease         uuid,                        -- of the worker that has it
    leased_until  timestamptz,                 -- a worker that died leaves its lease to run out
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    check (status in ('pending', 'processing', 'completed', 'failed', 'cancelled'))
);
create index operations_by_bank on operations (bank, created_at desc);
create index operations_waiting on operations (created_at) where status in ('pending', 'processing');
