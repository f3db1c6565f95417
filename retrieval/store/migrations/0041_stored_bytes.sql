-- What a bank holds of its tenant's own, in bytes: texts, contexts and metadata, and a flat sum per
-- row for what is made of it (vector, columns, postings, indexes). Kept by statement, inside the
-- transaction that writes, so that it is always right and never counted anew.
alter table banks add column stored_bytes bigint not null default 0;

do $do$
declare
    counted record;
begin
    for counted in
        select * from (values
            ('memory_units', '2048 + octet_length(r.text) + coalesce(octet_length(r.context), 0)'
                ' + coalesce(pg_column_size(r.metadata), 0)'),
            ('documents', '256 + coalesce(octet_length(r.original_text), 0)'
                ' + pg_column_size(r.metadata) + pg_column_size(r.retain_params)'),
            ('chunks', '256 + octet_length(r.chunk_text)')
        ) v (name, size)
    loop
        execute format($f$
            create function count_%1$s() returns trigger language plpgsql as $$
            begin
                if tg_op = 'INSERT' then
                    update banks b set stored_bytes = b.stored_bytes + d.n
                    from (select r.bank, sum(%2$s) as n from came r group by r.bank) d
                    where b.bank = d.bank;
                elsif tg_op = 'DELETE' then
                    update banks b set stored_bytes = b.stored_bytes - d.n
                    from (select r.bank, sum(%2$s) as n from gone r group by r.bank) d
                    where b.bank = d.bank;
                else
                    update banks b set stored_bytes = b.stored_bytes + d.n
                    from (
                        select s.bank, sum(s.n) as n from (
                            select r.bank, %2$s as n from came r
                            union all select r.bank, -(%2$s) from gone r
                        ) s group by s.bank
                    ) d
                    where b.bank = d.bank and d.n <> 0;
                end if;
                return null;
            end $$;
            create trigger count_insert after insert on %1$s referencing new table as came
                for each statement execute function count_%1$s();
            create trigger count_update after update on %1$s
                referencing old table as gone new table as came
                for each statement execute function count_%1$s();
            create trigger count_delete after delete on %1$s referencing old table as gone
                for each statement execute function count_%1$s();
            update banks b set stored_bytes = b.stored_bytes + d.n
            from (select r.bank, sum(%2$s) as n from %1$s r group by r.bank) d
            where b.bank = d.bank;
        $f$, counted.name, counted.size);
    end loop;
end $do$;

-- At the commit, when all that a write takes away is gone too. What only takes away always may.
create function check_stored() returns trigger language plpgsql as $$
declare
    most bigint;
    held bigint;
begin
    select case when jsonb_typeof(limits -> 'max_stored_bytes') = 'number'
        then floor((limits ->> 'max_stored_bytes')::numeric)::bigint end
    into most from tenants where tenant_id = new.tenant_id;
    if most > 0 then
        select sum(stored_bytes) into held from banks where tenant_id = new.tenant_id;
        if held > most then
            raise exception using errcode = 'FF413', message = format(
                'the tenant may store %s bytes, and with this write it would be %s', most, held);
        end if;
    end if;
    return null;
end $$;
create constraint trigger check_stored after update of stored_bytes on banks
    deferrable initially deferred for each row
    when (new.stored_bytes > old.stored_bytes) execute function check_stored();
