-- What waits in the queue, or failed and may be tried again, is stored as well: it counts against its
-- tenant's limit. It is counted where something comes in, not kept as a sum: the bank's row, which
-- would hold the sum, is locked by whoever writes the bank, and queueing must not wait for him.
create index operations_with_payload on operations (bank) where status <> 'completed';

create function check_stored_of(tenant text) returns void language plpgsql as $$
declare
    most bigint;
    held bigint;
begin
    select case when jsonb_typeof(limits -> 'max_stored_bytes') = 'number'
        then floor((limits ->> 'max_stored_bytes')::numeric)::bigint end
    into most from tenants where tenant_id = tenant;
    if most > 0 then
        select coalesce(sum(b.stored_bytes + (
                select coalesce(sum(pg_column_size(o.payload)), 0) from operations o
                where o.bank = b.bank and o.status <> 'completed')), 0)
            into held from banks b where b.tenant_id = tenant;
        if held > most then
            raise exception using errcode = 'FF413', message = format(
                'the tenant may store %s bytes, and with this write it would be %s', most, held);
        end if;
    end if;
end $$;

create or replace function check_stored() returns trigger language plpgsql as $$
begin
    perform check_stored_of(new.tenant_id);
    return null;
end $$;

create function check_queued() returns trigger language plpgsql as $$
begin
    perform check_stored_of((select tenant_id from banks where bank = new.bank));
    return null;
end $$;
-- Only what brings contents: jobs of the server's own are done for any tenant.
create constraint trigger check_queued after insert on operations
    deferrable initially deferred for each row
    when (new.type = 'retain') execute function check_queued();
