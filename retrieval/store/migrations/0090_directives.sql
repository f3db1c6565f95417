-- Rules that go into every answer of a bank: untagged ones always, tagged ones where the scope matches.
create table directives (
    bank       bigint not null references banks on delete cascade,
    id         uuid not null,
    name       text not null,
    content    text not null,
    priority   int not null default 0,
    is_active  boolean not null default true,
    tags       text[] not null default '{}',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (bank, id)
);
create index directives_by_priority on directives (bank, priority desc, created_at, id);
