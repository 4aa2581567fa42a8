#!lua flags=allow-oom
-- Create a shard, or open one that exists. Runs though the server's memory is full, so that another
-- worker can go on.
-- KEYS  meta; then the shard's other keys that have fixed names
-- ARGV  incarnation to take if the shard is new, recipe digest, recipe name, layout (JSON), time to
--       live in milliseconds, settings to store (JSON; '' for none), key of the hashes to take if the
--       shard is new
-- Returns incarnation, digest, recipe name, layout, key as they are stored.
-- Cost  two to eight commands.
--
-- Where only meta was lost, other keys may still exist. Clusters and partitions of another incarnation
-- do not count as stored; the keys with fixed names, which lead to them, are deleted at once. Where there
-- are none, there are no slices either: whoever makes one gives it its time to live, so all are renewed.
-- A caller with another recipe will be refused: it renews nothing, and stores nothing.
if redis.call('EXISTS', KEYS[1]) == 0 then
  local left_behind = redis.call('UNLINK', unpack(KEYS, 2))
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'digest', ARGV[2], 'recipe', ARGV[3], 'layout', ARGV[4],
    'key', ARGV[7])
  if left_behind == 0 then redis.call('HSET', KEYS[1], 'kept', redis.call('TIME')[1], 'kept_for', ARGV[5]) end
end
local stored = redis.call('HMGET', KEYS[1], 'incarnation', 'digest', 'recipe', 'layout', 'key')
if stored[2] == ARGV[2] then
  if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'settings', ARGV[6]) end
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return stored
