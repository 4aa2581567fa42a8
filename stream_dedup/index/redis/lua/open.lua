#!lua flags=allow-oom
-- Stamp a shard, or learn how it is stamped. Runs though the server's memory is full, so that
-- another worker can go on.
-- KEYS  meta
-- ARGV  incarnation to take if the shard is new, recipe digest, recipe name, layout (JSON), ttl in
--       milliseconds
-- Returns incarnation, digest, recipe name, layout as they are stored.
-- Cost  two to four commands.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'digest', ARGV[2], 'recipe', ARGV[3], 'layout', ARGV[4])
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return redis.call('HMGET', KEYS[1], 'incarnation', 'digest', 'recipe', 'layout')
