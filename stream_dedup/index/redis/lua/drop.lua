#!lua flags=allow-oom
-- Drop what was prepared under an attempt that was not decided, and have no request of it do anything any more.
-- KEYS  as those of record of a commit on many shards, without clusters
-- ARGV  incarnation, settings (see _shard.lua), partition's name, fence, number of the attempt under it,
--       latest event time of the commit: the partition holds stream time back; '' if it does not
-- Returns nothing.
-- Cost  a dozen commands.
local reply = lost()
if reply then return reply end
local heads, partition, fence, attempt = KEYS[7], KEYS[8], tonumber(ARGV[4]), tonumber(ARGV[5])
local known = call('HMGET', partition, 'fence', 'attempt')
if known[1] and is_later(fence, attempt, known[2]) then
  call('HSET', partition, 'attempt', number_of(fence, attempt))
end
if is_prepared(fence, attempt) then release(ARGV[3]) end
if ARGV[6] ~= '' and tonumber(known[1] or 0) == fence then
  arrive(heads, ARGV[3], tonumber(ARGV[6]))
  renew(heads)
end
return redis.status_reply('OK')
