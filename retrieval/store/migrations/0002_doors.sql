-- Processes that let requests in: each keeps its row fresh, so that they can share what a tenant
-- may do. Nothing to keep through a crash.
create unlogged table doors (
    id   uuid primary key,
    seen timestamptz not null
);
