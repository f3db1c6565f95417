-- Files that came with contents: their bytes once per bank, under the first twelve digits of their
-- hash, and which documents refer to them, as what. What no document refers to is gone at once.
create table attachments (
    bank       bigint not null references banks on delete cascade,
    id         text not null,
    hash       bytea not null,   -- SHA-256
    byte_size  bigint not null,
    created_at timestamptz not null default now(),
    primary key (bank, id)
);
create table attachment_parts (
    bank bigint not null,
    id   text not null,
    part int not null,
    data bytea not null,
    primary key (bank, id, part),
    foreign key (bank, id) references attachments on delete cascade
);
alter table attachment_parts alter column data set storage external;  -- most of them are compressed
create table document_attachments (
    bank        bigint not null,
    document_id text not null,
    id          text not null,
    kind        text not null check (kind in ('image', 'file')),
    media_type  text not null,
    filename    text,
    created_at  timestamptz not null default now(),
    primary key (bank, document_id, id),
    foreign key (bank, document_id) references documents on delete cascade,
    foreign key (bank, id) references attachments on delete cascade
);
create index document_attachments_by_id on document_attachments (bank, id);

alter table banks add column attached boolean not null default false;  -- has it ever had one?

create function drop_attachments() returns trigger language plpgsql as $$
begin
    delete from attachments a using gone g where a.bank = g.bank and a.id = g.id
        and not exists (select from document_attachments d where d.bank = a.bank and d.id = a.id);
    return null;
end $$;
create trigger drop_attachments after delete on document_attachments
    referencing old table as gone for each statement execute function drop_attachments();

-- They count as what the tenant stores.
create function count_attachments() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        update banks b set stored_bytes = b.stored_bytes + d.n, attached = true
        from (select r.bank, sum(256 + r.byte_size) as n from came r group by r.bank) d
        where b.bank = d.bank;
    else
        update banks b set stored_bytes = b.stored_bytes - d.n
        from (select r.bank, sum(256 + r.byte_size) as n from gone r group by r.bank) d
        where b.bank = d.bank;
    end if;
    return null;
end $$;
create trigger count_insert after insert on attachments referencing new table as came
    for each statement execute function count_attachments();
create trigger count_delete after delete on attachments referencing old table as gone
    for each statement execute function count_attachments();
