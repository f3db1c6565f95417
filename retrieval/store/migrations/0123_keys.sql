-- oldest program: 92
-- Keys found by their public part, with scopes, an end, and a last use. Keys from before have no
-- public part: they are found by their hash, and may do what they could do.
alter table api_keys add column public_id text unique;
alter table api_keys add column scopes text[] not null default '{read,write,admin}';
alter table api_keys add column expires_at timestamptz;
alter table api_keys add column last_used_at timestamptz;
