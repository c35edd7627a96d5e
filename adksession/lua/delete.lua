-- delete. Reply {DONE, 0}.
run('UNLINK', SESSION, RECORDS)
run('ZREM', INDEX, member)
run('ZREM', EXPIRIES, member)
return failed and result() or {DONE, 0}
