-- Documents that a language model keeps up to date: an answer to a question, stored.
create table mental_models (
    bank          bigint not null references banks on delete cascade,
    id            text not null,
    name          text not null,
    source_query  text not null,
    tags          text[] not null default '{}',
    max_tokens    int not null,
    trigger       jsonb not null default '{}',
    is_page       boolean not null default false,
    revision      bigint not null default 0,   -- rises with every change of what a refresh reads
    content       text not null default '',    -- markdown; '' until there is something to say
    document      jsonb,                       -- the content as sections of blocks, with citations
    content_query text,                        -- the question that the content answers
    reflect_response jsonb,
    watermark     int not null default 0,      -- memories with ordinals below it have been seen
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    last_refreshed_at      timestamptz,
    last_memory_seen_at    timestamptz,
    last_refresh_failed_at timestamptz,
    last_full_refreshed_at timestamptz,
    pending_refresh boolean not null default false, -- its scope changed; a refresh is to be queued
    next_refresh_at      timestamptz,          -- the next times of its two schedules
    next_full_refresh_at timestamptz,
    failed_deltas int not null default 0,      -- in a row
    failed_fulls  int not null default 0,
    parked_at     int,                         -- next_ordinal when it was given up; null: it was not
    terms         jsonb,                       -- analysed words of the search, with their counts
    vector        bytea,                       -- float32, unit length; null until it is searched
    vector_set    text not null default '',
    primary key (bank, id)
);
create index mental_models_pending on mental_models (bank) where pending_refresh;
create index mental_models_due on mental_models
    (least(next_refresh_at, next_full_refresh_at))
    where next_refresh_at is not null or next_full_refresh_at is not null;
create index mental_models_by_tag on mental_models using gin (tags);

-- The memories that a document cites: one that is gone makes the document stale.
create table mental_model_citations (
    bank      bigint not null,
    model_id  text not null,
    memory_id uuid not null,
    primary key (bank, model_id, memory_id),
    foreign key (bank, model_id) references mental_models on delete cascade
);
create index mental_model_citations_by_memory on mental_model_citations (bank, memory_id);

create table mental_model_history (
    bank       bigint not null,
    model_id   text not null,
    entry      bigint generated always as identity,
    previous_content text not null,
    changed_at timestamptz not null default now(),
    primary key (bank, model_id, entry),
    foreign key (bank, model_id) references mental_models on delete cascade
);

create index operations_refreshing on operations (bank, (payload->>'mental_model_id'))
    where type = 'refresh_mental_model' and status in ('pending', 'processing');
