#!lua flags=allow-oom
-- Take a partition over. Runs though the server's memory is full, so that
-- another worker can go on.
-- KEYS  meta, partition, journal
-- ARGV  incarnation, ttl in milliseconds, fence to take ('' for the next), least fence, end offset
--       of the partition ('' if not known)
-- Returns {fence, high water, committed offset, whether the high water was taken back, journal of a
--       batch …}; the fence stands above the one to take if somebody else has claimed since.
-- Cost  four commands.
local call = redis.call
if call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return redis.error_reply('SDRESET the namespace was lost or made anew')
end
local known = call('HMGET', KEYS[2], 'fence', 'high_water', 'committed')
local fence, high_water, committed = tonumber(known[1] or 0), known[2] or '-1', known[3] or '0'
if ARGV[3] == '' then
  fence = math.max(fence, tonumber(ARGV[4])) + 1
elseif tonumber(ARGV[3]) < fence then
  return {string.format('%.0f', fence), '-1', '0', 0}
else
  fence = tonumber(ARGV[3])
end
local reset = ARGV[5] ~= '' and tonumber(high_water) >= tonumber(ARGV[5])
if reset then
  high_water, committed = '-1', '0'
  call('DEL', KEYS[3])
end
local shown = string.format('%.0f', fence)
call('HSET', KEYS[2], 'fence', shown, 'high_water', high_water, 'committed', committed)
call('PEXPIRE', KEYS[2], ARGV[2])
local answer = call('ZRANGE', KEYS[3], 0, -1)
for i, value in ipairs({shown, high_water, committed, reset and 1 or 0}) do
  table.insert(answer, i, value)
end
return answer
