-- Who read or changed what. Rows are added and, after a while, dropped; an erasure empties the bodies.
create table audit_logs (
    tenant_id   text not null,
    bank_id     text not null,                 -- by name: the log outlives the bank
    id          uuid not null,
    action      text not null,
    transport   text not null check (transport in ('http', 'mcp', 'system')),
    started_at  timestamptz not null,
    ended_at    timestamptz,
    duration_ms int,
    metadata    jsonb not null default '{}',
    request     jsonb,
    response    jsonb,
    primary key (tenant_id, bank_id, id)
);
create index audit_logs_by_bank on audit_logs (tenant_id, bank_id, started_at desc, id desc);
create index audit_logs_by_age on audit_logs (started_at);

create function forget_audit_bodies() returns trigger language plpgsql as $$
begin
    update audit_logs set request = null, response = null
        where tenant_id = old.tenant_id and bank_id = old.bank_id
        and (request is not null or response is not null);
    return old;
end $$;
create trigger banks_forget_audit_bodies after delete on banks
    for each row execute function forget_audit_bodies();
