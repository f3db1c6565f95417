-- oldest program: 92
-- What each tenant did, by minute: counts, never what was said. Kept for two days.
create table usage (
    tenant_id text not null,
    minute    timestamptz not null,
    recalls   bigint not null default 0,
    writes    bigint not null default 0,
    reads     bigint not null default 0,
    refused   bigint not null default 0,
    degraded  bigint not null default 0,
    busy_ms   double precision not null default 0,
    primary key (tenant_id, minute)
);
create index usage_by_minute on usage (minute);
