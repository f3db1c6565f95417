-- Other ids under which a bank is reached. A bank that is really called so wins.
create table bank_aliases (
    tenant_id  text not null,
    alias      text not null,
    bank       bigint not null references banks on delete cascade,
    is_primary boolean not null default false,
    created_at timestamptz not null default now(),
    primary key (tenant_id, alias)
);
create index bank_aliases_by_bank on bank_aliases (bank);
