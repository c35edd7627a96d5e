-- The tables of the sessions of ADK.

-- A session. Each call that writes locks its row. No row of another session has its id, also later.
CREATE TABLE {schema}.adk_session (
  namespace text COLLATE "C", app text COLLATE "C", usr text COLLATE "C", name text COLLATE "C",
  id        bigint GENERATED ALWAYS AS IDENTITY,
  op        text NOT NULL,                                  -- of the last append; at first of the create
  n         bigint NOT NULL DEFAULT 0,                      -- number of events
  mark      bigint NOT NULL,                                -- the highest token
  stopped   bigint NOT NULL DEFAULT 0,                      -- the token of the last stop
  updated   timestamptz NOT NULL DEFAULT clock_timestamp(), -- by a create or an append
  expires   timestamptz NOT NULL,                           -- infinity without IdleTTL
  PRIMARY KEY (namespace, app, usr, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX adk_session_expires ON {schema}.adk_session (expires) WHERE expires < 'infinity';

-- Event n of a session, from 0 on: JSON. ⚑ As text: jsonb refuses the \u0000 of a tool.
CREATE TABLE {schema}.adk_event (session bigint, n bigint, event text NOT NULL, PRIMARY KEY (session, n));

-- A key of a state. Its scope is 'a', 'u' and the user, or 's' and the id of the session.
CREATE TABLE {schema}.adk_state (
  namespace text COLLATE "C", app text COLLATE "C", scope text COLLATE "C", key text COLLATE "C", value text NOT NULL,
  PRIMARY KEY (namespace, app, scope, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- A reply.
CREATE TYPE {schema}.adk_reply AS (outcome integer, mark bigint, app text, usr text, name text, op text,
  n bigint, updated timestamptz, keys text[], contents text[], events text[]);
