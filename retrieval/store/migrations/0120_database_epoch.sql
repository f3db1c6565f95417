-- oldest program: 92
-- Which history of this database its versions belong to: after a restore to an earlier state, or the
-- loss of commits in a failover, a new epoch tells replicas that what they hold may never have been.
create table database_epoch (
    one   boolean primary key default true check (one),
    epoch text not null,
    began timestamptz not null default now()
);
insert into database_epoch (epoch) values (gen_random_uuid()::text);
