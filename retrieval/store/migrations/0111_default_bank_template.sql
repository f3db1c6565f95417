-- What the server's settings name for banks that are made without a template of their own: {settings,
-- mental_models, directives}, checked.
create table default_bank_template (
    one     boolean primary key default true check (one),
    content jsonb not null
);
