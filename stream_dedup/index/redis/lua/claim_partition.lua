#!lua flags=allow-oom
-- Claim a partition. Runs though the server's memory is full, so that another worker can go on.
-- KEYS  meta, partition, journal
-- ARGV  incarnation, time to live in milliseconds, fence to take ('' for the next), least fence, end offset
--       of the partition ('' if not known), token: random, the claim's own, identity of the
--       topic ('' if not known)
-- Returns {fence, high water, committed offset, 1 if the high water was reset because it is beyond
--       the end, 2 because of another identity, else 0, what left by rules that limit patterns ('' if
--       that is not known), journal of a batch …}; the fence is above the one to take if another
--       worker has claimed since.
--       The latest claim repeated under its token returns the same and changes nothing.
-- Cost  four commands; five where what left by rules is forgotten, and two more for a reset.
local reply = lost()
if reply then return reply end

local call = redis.call
local known = call('HMGET', KEYS[2], 'fence', 'high_water', 'committed', 'claim', 'incarnation',
  'topic', 'kept')
local fence, high_water, committed = tonumber(known[1] or 0), known[2] or '-1', known[3] or '0'
local claim, reset, identity, kept = known[4] or '', 0, known[6] or '', known[7] or ''
local token = string.sub(claim, 1, -1 - FLAG_BYTES)
if known[5] and known[5] ~= ARGV[1] then  -- left behind when meta was lost: only its fence counts
  high_water, committed, token, identity, kept = '-1', '0', '', '', ''
  call('DEL', KEYS[3])
end
if token == ARGV[6] and token ~= '' then
  reset = tonumber(string.sub(claim, -1))
else
  if ARGV[3] == '' then
    fence = math.max(fence, tonumber(ARGV[4])) + 1
  elseif tonumber(ARGV[3]) < fence then
    return {string.format('%.0f', fence), '-1', '0', 0, ''}
  else
    fence = tonumber(ARGV[3])
  end
  if ARGV[7] ~= '' and identity ~= '' and identity ~= ARGV[7] then
    reset = 2
  elseif ARGV[5] ~= '' and tonumber(high_water) >= tonumber(ARGV[5]) then
    reset = 1
  end
  if reset > 0 then
    high_water, committed, kept = '-1', '0', ''
    call('DEL', KEYS[3])
    call('HDEL', KEYS[2], 'attempt')  -- what is finished later names offsets of before, see record
  end
end
local fence_text = string.format('%.0f', fence)
call('HSET', KEYS[2], 'fence', fence_text, 'high_water', high_water, 'committed', committed,
  'claim', ARGV[6] .. reset, 'incarnation', ARGV[1],
  'topic', ARGV[7] ~= '' and ARGV[7] or identity)
if kept == '' and known[7] then call('HDEL', KEYS[2], 'kept') end
call('PEXPIRE', KEYS[2], ARGV[2])
local answer = call('ZRANGE', KEYS[3], 0, -1)
for i, value in ipairs({fence_text, high_water, committed, reset, kept}) do
  table.insert(answer, i, value)
end
return answer
