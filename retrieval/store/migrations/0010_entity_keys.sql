-- Keys of names are folded by the program, not by the database, whose lower() depends on its locale.
-- What is there is folded at the bank's next write: banks.name_folding is the revision of the
-- folding that its keys were made with.

alter table banks add column name_folding int not null default 0;
alter table entities add column plain_key text;  -- without punctuation and accents; null: name_key
create index entities_by_plain on entities (bank, plain_key) where plain_key is not null;
