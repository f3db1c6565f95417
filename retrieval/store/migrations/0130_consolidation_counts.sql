-- What statistics ask of consolidation, without a look at every memory: when it was last done, and
-- for how many it failed.
create index memory_units_consolidated on memory_units (bank, consolidated_at)
    where ordinal is not null and consolidated_at is not null and fact_type <> 2;
create index memory_units_consolidation_failed on memory_units (bank)
    where ordinal is not null and consolidation_failed_at is not null and fact_type <> 2;
