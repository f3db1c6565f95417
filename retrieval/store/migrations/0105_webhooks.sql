-- Who is told what happens in a bank, and what is still to be told (an outbox: rows are written in the
-- transaction of what they tell of). Secrets and http_config are sealed by the program.
create table webhooks (
    bank          bigint not null references banks on delete cascade,
    id            uuid not null,
    url           text not null,
    receiver      text not null,               -- host:port: so many at once each
    event_types   text[] not null,
    enabled       boolean not null default true,
    secret        bytea,
    previous_secret bytea,                     -- signs as well for a day after a change
    secret_changed_at timestamptz,
    http_config   bytea not null,
    failing_since timestamptz,                 -- the first failure after the last success
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    primary key (bank, id)
);

-- The one that the server's settings name, for all banks.
create table webhook_of_all (
    one         boolean primary key default true check (one),
    url         text not null,
    receiver    text not null,
    event_types text[] not null,
    secret      bytea
);

create table webhook_deliveries (
    tenant_id    text not null,
    bank_id      text not null,                -- by name: the end of a bank is told as well
    id           uuid not null,
    webhook_id   uuid,                         -- null: that of all banks
    event_id     uuid not null,
    event_type   text not null,
    url          text not null,
    receiver     text not null,
    body         bytea,                        -- as it is sent; null: erased
    status       text not null default 'pending',
    attempts     int not null default 0,
    next_attempt_at timestamptz default now(),
    lease        uuid,
    leased_until timestamptz,
    last_error   text,
    last_response_status int,
    last_response_body text,
    last_attempt_at timestamptz,
    -- Of a webhook that goes with its bank.
    secret       bytea,
    previous_secret bytea,
    http_config  bytea,
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default now(),
    primary key (tenant_id, bank_id, id),
    check (status in ('pending', 'processing', 'completed', 'failed'))
);
create index webhook_deliveries_due on webhook_deliveries (next_attempt_at)
    where status in ('pending', 'processing');
create index webhook_deliveries_by_webhook
    on webhook_deliveries (tenant_id, bank_id, webhook_id, created_at desc);
create index webhook_deliveries_by_age on webhook_deliveries (created_at);

-- Keys that the server made itself since nobody gave it one.
create table server_keys (
    name  text primary key,
    value bytea not null
);

create function forget_deliveries() returns trigger language plpgsql as $$
begin
    delete from webhook_deliveries where tenant_id = old.tenant_id and bank_id = old.bank_id
        and not (event_type = 'bank.deleted' and status in ('pending', 'processing'));
    return old;
end $$;
create trigger banks_forget_deliveries after delete on banks
    for each row execute function forget_deliveries();
