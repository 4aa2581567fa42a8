-- Count what was prepared under an attempt that was decided: the call is that of record, as it was prepared.
-- Comes before _shard.lua, _many.lua and record.lua.
-- KEYS  as those of record, without clusters
-- ARGV  incarnation, settings (see _shard.lua), number of the attempt
-- Returns what record does; or {0, high water} if nothing is prepared under it.
local KEYS, ARGV = KEYS, ARGV
do
  local stored, prepared = redis.call('HMGET', KEYS[12], 'attempt', 'call'), nil
  if stored[1] == ARGV[3] then prepared = cmsgpack.unpack(stored[2]) end
  if not prepared or prepared[2][1] ~= ARGV[1] then
    local reply = lost()
    if reply then return reply end
    return {0, redis.call('HGET', KEYS[8], 'high_water') or '-1'}
  end
  local batch = prepared[2][4]
  prepared[2][1], prepared[2][2] = ARGV[1], ARGV[2]
  prepared[2][4] = string.sub(batch, 1, BATCH_PART_AT - 1) .. struct.pack('<d', PART_FINISH)
  KEYS, ARGV = prepared[1], prepared[2]
end
