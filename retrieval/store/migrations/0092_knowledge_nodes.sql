-- The knowledge base: folders, and pages whose text is a mental model.
create table knowledge_nodes (
    bank       bigint not null references banks on delete cascade,
    id         text not null,                  -- kf-... or kp-...
    parent_id  text,                           -- a folder; null: the root
    name       text not null,
    name_key   text not null,                  -- folded: a folder has a name once, in any case
    mental_model_id text,                      -- of a page
    managed    boolean not null default false,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (bank, id),
    foreign key (bank, parent_id) references knowledge_nodes on delete cascade,
    foreign key (bank, mental_model_id) references mental_models on delete cascade
);
create unique index knowledge_nodes_by_name on knowledge_nodes (bank, coalesce(parent_id, ''), name_key);
create unique index knowledge_nodes_by_model on knowledge_nodes (bank, mental_model_id)
    where mental_model_id is not null;
create index knowledge_nodes_by_parent on knowledge_nodes (bank, parent_id);
