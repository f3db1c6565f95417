-- What `q` of the list of banks is looked for in: the id and the name, folded by our own rules, which
-- hold in every locale. Null in rows from before; the program fills it in.
alter table banks add column search_key text;
