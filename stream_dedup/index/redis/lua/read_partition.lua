#!lua flags=allow-oom
-- Read what a claimed partition holds. Runs though the server's memory is full, and on no replica.
-- KEYS  meta, partition, journal
-- ARGV  incarnation, fence of the claim
-- Returns what claim_partition returns, without a reset.
--       SDFENCE, SDUNCLAIMED: as record.
-- Cost  three commands.
local reply = lost()
if reply then return reply end

local call = redis.call
local known = call('HMGET', KEYS[2], 'fence', 'high_water', 'committed', 'kept')
if not known[1] then return redis.error_reply('SDUNCLAIMED nobody owns the partition') end
if tonumber(known[1]) ~= tonumber(ARGV[2]) then return redis.error_reply('SDFENCE ' .. known[1]) end
local answer = call('ZRANGE', KEYS[3], 0, -1)
for i, value in ipairs({known[1], known[2], known[3], 0, known[4] or ''}) do
  table.insert(answer, i, value)
end
return answer
