-- oldest program: 92
-- What a process does, and until when it counts as there: each says it for itself, since large
-- companies speak up less often.
alter table ingress_heartbeats add column role text not null default 'door';
alter table ingress_heartbeats add column fresh_until timestamptz;
