-- What was deleted is to be gone from the segments, too: since when something of a bank is not.
alter table banks add column erase_since timestamptz;
create index banks_to_erase on banks (erase_since) where erase_since is not null;
update banks b set erase_since = now()
    where exists (select from tombstones t where t.bank = b.bank);

-- Processes that hold banks in memory, and when each last let go of what is outdated. Nothing to keep
-- through a crash.
create unlogged table replicas (
    id       uuid primary key,
    swept_at timestamptz not null
);

create index operations_ended on operations (updated_at)
    where status in ('completed', 'failed', 'cancelled');
