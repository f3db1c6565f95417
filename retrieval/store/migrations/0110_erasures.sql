-- Counts erasures: a process that sees another number than before forgets the words that it remembers.
create table erasures (number bigint not null);
insert into erasures values (0);

-- A caller's name for a request may say anything: it is kept as its hash.
update answers set key = encode(sha256(convert_to(key, 'UTF8')), 'hex');
