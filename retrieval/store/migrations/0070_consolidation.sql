-- What consolidation keeps. Of an observation: from when and until when what it says held (null: not
-- known, or still), and which one says what came after. Of a memory: the scopes that it was
-- consolidated in, why that failed, and with which others it is to be shown again.
alter table memory_units add column valid_from timestamptz;
alter table memory_units add column valid_until timestamptz;
alter table memory_units add column superseded_by uuid;
alter table memory_units add column consolidated_scopes text[] not null default '{}';
alter table memory_units add column consolidation_error text;
alter table memory_units add column consolidation_group uuid;

create index memory_units_to_consolidate on memory_units (bank, ordinal)
    where ordinal is not null and consolidated_at is null and consolidation_failed_at is null
        and fact_type <> 2;
create index memory_units_superseding on memory_units (bank, superseded_by)
    where superseded_by is not null;
create index operations_of_banks on operations (bank, type)
    where status in ('pending', 'processing');
