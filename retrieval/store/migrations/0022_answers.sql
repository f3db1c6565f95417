-- Answers of writes that were sent under a key of the caller's, so that the same request again has
-- the same answer and does nothing.
create table answers (
    bank       bigint not null references banks on delete cascade,
    key        text not null,
    body_hash  bytea not null,                 -- sha256 of the request
    answer     jsonb not null,
    created_at timestamptz not null default now(),
    primary key (bank, key)
);
create index answers_by_age on answers (created_at);
