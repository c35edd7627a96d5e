-- The tables of the locks. docs/design/postgres.md states their invariants. A moment is a number of
-- µs since the Unix epoch.
--
-- ⚑ lease has no index beside its primary key, so that its updates stay within a page. No table is
-- UNLOGGED: one killed server process empties such a table.
CREATE TABLE {schema}.lease (
  namespace         text COLLATE "C" NOT NULL,
  key               text COLLATE "C" NOT NULL,
  owner             text    NOT NULL DEFAULT '',
  released          boolean NOT NULL DEFAULT true,
  previous          text    NOT NULL DEFAULT '',
  previous_released boolean NOT NULL DEFAULT false,
  token             bigint  NOT NULL DEFAULT 0,
  block_end         bigint  NOT NULL DEFAULT 0 CHECK (block_end < 9007199254740992), -- 2^53
  granted_at        bigint  NOT NULL DEFAULT 0,
  expires_at        bigint  NOT NULL DEFAULT 0,
  tickets           bigint  NOT NULL DEFAULT 0,
  waiting           integer NOT NULL DEFAULT 0,
  flagged_until     bigint  NOT NULL DEFAULT 0,
  payload           bytea   NOT NULL DEFAULT '',
  asked             bigint  NOT NULL DEFAULT 0, -- the token of the last Ask of this grant
  PRIMARY KEY (namespace, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.waiter (
  namespace   text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  ticket      bigint NOT NULL,
  owner       text   NOT NULL,
  alive_until bigint NOT NULL,
  seq         bigint NOT NULL,
  channel     text   NOT NULL,
  payload     bytea  NOT NULL,
  PRIMARY KEY (namespace, key, ticket),
  UNIQUE (owner, namespace, key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.tomb (
  namespace text COLLATE "C" NOT NULL,
  key       text COLLATE "C" NOT NULL,
  owner     text   NOT NULL,
  until     bigint NOT NULL,
  PRIMARY KEY (namespace, key, owner)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);

-- The server's clock.
CREATE FUNCTION {schema}.clock_v1() RETURNS bigint LANGUAGE sql VOLATILE
  RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
