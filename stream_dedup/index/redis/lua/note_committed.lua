#!lua flags=allow-oom
-- Note that all events of a partition before an offset were delivered, as far as they were counted. Runs though
-- the server's memory is full.
-- KEYS  meta, partition, journal
-- ARGV  incarnation, fence, offset
-- Returns nothing. Does nothing if another claim has taken the partition, or as much is known.
-- Cost  two commands, or four.
local reply = lost()
if reply then return reply end

local call = redis.call
local known = call('HMGET', KEYS[2], 'fence', 'committed', 'high_water')
local offset = math.min(tonumber(ARGV[3]), tonumber(known[3] or -1) + 1)
if tonumber(known[1]) == tonumber(ARGV[2]) and tonumber(known[2] or 0) < offset then
  local text = string.format('%.0f', offset)
  call('HSET', KEYS[2], 'committed', text)
  call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. text)
end
return redis.status_reply('OK')
