-- The tables of the sessions. docs/design/pgstore.md states the protocol.

-- A session. Its row is locked and changed by each call under a lease.
CREATE TABLE {schema}.session (
  namespace   text COLLATE "C" NOT NULL,
  name        text COLLATE "C" NOT NULL,
  id          bigint GENERATED ALWAYS AS IDENTITY,
  fence       bigint NOT NULL DEFAULT 0,       -- the mark: the highest place that the session has seen
  n           bigint NOT NULL DEFAULT 0,
  op          uuid,                            -- the write that has taken the mark
  state       text NOT NULL DEFAULT 'empty',   -- under the token of the mark: empty, cleared or begun
  deleted     bigint NOT NULL DEFAULT 0,       -- the token of the last Delete
  stopped     bigint NOT NULL DEFAULT 0,       -- and of the last stop
  newest      uuid,                            -- the ID that has arrived last, see known
  revision    bigint NOT NULL DEFAULT 0,       -- at least the highest sub-place given out; changes with the history
  exchanges   bigint NOT NULL DEFAULT 0,       -- how many rows of exchange
  kept_until  timestamptz NOT NULL DEFAULT clock_timestamp(), -- of the exchanges; without one, the last use
  sweep_at    timestamptz NOT NULL DEFAULT clock_timestamp() + interval '24 hours', -- when to look at the row
  PRIMARY KEY (namespace, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);

-- sweep_at changes seldom, so most updates of a row touch no index.
CREATE INDEX session_sweep_at ON {schema}.session (sweep_at);

-- An exchange, at its place. No row of another session has its session's id, also later.
CREATE TABLE {schema}.exchange (
  session  bigint NOT NULL,
  fence    bigint NOT NULL,
  n        bigint NOT NULL,
  sub      bigint NOT NULL,
  op       uuid,              -- identity of the Save; null for replaced content
  ids      bytea[],           -- of its messages; null or empty without one
  messages bytea[] NOT NULL,
  pinned   boolean NOT NULL DEFAULT false,
  PRIMARY KEY (session, fence, n, sub)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
  toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 1000);

-- Few exchanges are pinned, so most writes change the primary key alone.
CREATE INDEX exchange_pinned ON {schema}.exchange (session, fence, n, sub) WHERE pinned;

-- A message ID, and the place of its exchange. With n 0, it has no exchange, and fence is the outcome: 11
-- stopped, 12 superseded. 0: it has arrived.
CREATE TABLE {schema}.known (
  session bigint NOT NULL,
  id      uuid NOT NULL,      -- the first 16 bytes of its SHA-256
  until   timestamptz NOT NULL,
  digest  uuid NOT NULL,      -- of the messages
  fence   bigint NOT NULL,
  n       bigint NOT NULL,
  PRIMARY KEY (session, id)
);

-- A question in the inbox of a session. ⚑ It does not refer to the row of the session, which may go before.
CREATE TABLE {schema}.pending (
  namespace  text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  id         uuid NOT NULL,   -- as in known
  arrived    timestamptz NOT NULL,
  message_id bytea NOT NULL,
  question   bytea NOT NULL,
  PRIMARY KEY (namespace, name, id)
);

CREATE INDEX pending_arrived ON {schema}.pending (arrived);
