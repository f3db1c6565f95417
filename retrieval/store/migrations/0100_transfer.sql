-- A bank that is being built, out of an archive or another bank, is nobody's to read until it is whole.
-- The operation that builds it lies in a bank of its own or, where that did not exist, in the bank itself.
alter table banks add column state text not null default 'open'
    check (state in ('open', 'importing', 'abandoned'));
alter table banks add column built_by uuid;    -- the operation
alter table banks add column built_for bigint; -- the bank in which that lies
alter table banks add column building jsonb;   -- how far it has come
alter table banks add column former_id text;   -- of an abandoned bank, whose name is free again
create index banks_being_built on banks (built_for, built_by) where state = 'importing';
create index banks_abandoned on banks (tenant_id, former_id) where state = 'abandoned';

-- What was to build a bank is over: what there is of the bank is nobody's, and goes in the background.
create function abandon_bank() returns trigger language plpgsql as $$
begin
    update banks set state = 'abandoned', former_id = bank_id, bank_id = E'\x01' || bank,
        updated_at = now()
    where state = 'importing' and built_for = old.bank and built_by = old.operation_id;
    return null;
end $$;
create trigger abandon_on_end after update of status on operations for each row
    when (new.status in ('failed', 'cancelled') and old.status <> new.status
        and old.type in ('transfer_import', 'clone'))
    execute function abandon_bank();
create trigger abandon_on_delete after delete on operations for each row
    when (old.type in ('transfer_import', 'clone')) execute function abandon_bank();

-- Files, in parts of a MiB at most. One without a hash is not whole yet.
create table stored_files (
    file         bigint generated always as identity primary key,
    key          text not null unique,
    tenant_id    text not null,
    bank         bigint references banks on delete cascade,
    operation_id uuid,
    name         text not null,
    media_type   text not null,
    byte_size    bigint not null default 0,
    sha256       bytea,
    created_at   timestamptz not null default now(),
    expires_at   timestamptz not null,
    foreign key (bank, operation_id) references operations on delete cascade
);
create index stored_files_by_end on stored_files (expires_at);
create index stored_files_by_operation on stored_files (bank, operation_id);
create table stored_file_parts (
    file bigint not null references stored_files on delete cascade,
    part int not null,
    data bytea not null,
    primary key (file, part)
);
alter table stored_file_parts alter column data set storage external;
