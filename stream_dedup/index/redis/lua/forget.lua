#!lua flags=allow-oom
-- Forget a shard of the spread index, if it still is the one that the caller knows: what it holds does not
-- count as stored any more.
-- KEYS  meta
-- ARGV  incarnation
-- Returns how many were forgotten.
-- Cost  two commands.
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then return 0 end
return redis.call('UNLINK', KEYS[1])
