-- The bytes of an uploaded file, in slices, until it is converted: gone with its operation's end, or
-- a while after it failed.
create table operation_files (
    bank         bigint not null,
    operation_id uuid not null,
    part         int not null,
    data         bytea not null,
    primary key (bank, operation_id, part),
    foreign key (bank, operation_id) references operations on delete cascade
);
alter table operation_files alter column data set storage external;  -- most of them are compressed

-- A memory whose text (by its key), type, dates and tags were those of a live memory of another
-- document when it was written: it bears that one out, and says nothing new.
alter table memory_units add column text_key bytea;
alter table memory_units add column restates uuid;
create index memory_units_by_text on memory_units (bank, text_key)
    where text_key is not null and ordinal is not null;
