-- delete. Reply {DONE}.
run('UNLINK', SESSION, RECORDS)
run('ZREM', INDEX, member)
run('ZREM', EXPIRIES, member)
return result()
