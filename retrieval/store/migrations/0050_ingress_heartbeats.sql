-- The processes that let requests in, under the name that says what a row is.
alter table doors rename to ingress_heartbeats;
alter index doors_pkey rename to ingress_heartbeats_pkey;
