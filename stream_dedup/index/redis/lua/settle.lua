#!lua flags=allow-oom
-- Say whether an attempt to commit on many shards was decided, on the shard that decides it. If it was not, it
-- never will be.
-- KEYS  meta, partition
-- ARGV  incarnation, settings (see _shard.lua), fence, number of the attempt under it
-- Returns 1 or 0.
-- Cost  two or three commands.
local reply = lost()
if reply then return reply end
local fence, attempt = tonumber(ARGV[3]), tonumber(ARGV[4])
local known = call('HMGET', KEYS[2], 'fence', 'attempt', 'decided')
if known[3] == number_of(fence, attempt) then return 1 end
if known[1] and is_later(fence, attempt, known[2]) then
  call('HSET', KEYS[2], 'attempt', number_of(fence, attempt))
end
return 0
