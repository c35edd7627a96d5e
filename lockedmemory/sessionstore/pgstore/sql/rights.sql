-- The application needs EXECUTE on the functions, and no right to a table.
REVOKE ALL ON FUNCTION
  {schema}.append_release_v1,
  {schema}.append_v1,
  {schema}.close_v1,
  {schema}.inboxes_v1,
  {schema}.pending_v1,
  {schema}.put_v1,
  {schema}.read_v1,
  {schema}.replace_v1,
  {schema}.session_barred_v1,
  {schema}.session_fate_v1,
  {schema}.session_gone_v1,
  {schema}.session_judged_v1,
  {schema}.session_keep_v1,
  {schema}.session_know_v1,
  {schema}.session_lock_v1,
  {schema}.session_pends_v1,
  {schema}.session_put_v1,
  {schema}.session_raise_v1,
  {schema}.session_sweep_v1,
  {schema}.session_trim_v1,
  {schema}.sessions_v1
  FROM PUBLIC;
