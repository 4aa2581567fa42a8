#!lua flags=allow-oom
-- Stamp a shard, or learn how it is stamped. Runs though the server's memory is full, so that
-- another worker can go on.
-- KEYS  meta; then the shard's other keys that have fixed names
-- ARGV  incarnation to take if the shard is new, recipe digest, recipe name, layout (JSON), ttl in
--       milliseconds, settings to note (JSON; '' for none)
-- Returns incarnation, digest, recipe name, layout as they are stored.
-- Cost  two to six commands.
--
-- Where meta alone was lost, the rest may stand. Clusters and partitions of another incarnation count
-- as not there; what leads to them through fixed names goes at once.
-- Who comes with another recipe will be refused: it keeps nothing alive, and notes nothing.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('UNLINK', unpack(KEYS, 2))
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'digest', ARGV[2], 'recipe', ARGV[3], 'layout', ARGV[4])
end
local stored = redis.call('HMGET', KEYS[1], 'incarnation', 'digest', 'recipe', 'layout')
if stored[2] == ARGV[2] then
  if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'settings', ARGV[6]) end
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return stored
