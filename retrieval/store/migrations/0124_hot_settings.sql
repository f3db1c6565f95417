-- oldest program: 92
-- Settings that every process takes up while it runs, in place of those that it was started with.
create table hot_settings (
    name       text primary key,
    value      jsonb not null,
    changed_at timestamptz not null default now()
);
