#!lua
-- Write the rules of a namespace, unless somebody else has since they were read.
-- KEYS  rules
-- ARGV  the version that was read, the rules
-- Returns the new version. The first is the time, in ms: after rules were deleted, versions that
--       workers have read do not come again.
--       SDRULES if another version is stored; nothing is written then.
-- Cost  three commands. The key has no time to live: rules outlive what they act on.
local stored = tonumber(redis.call('HGET', KEYS[1], 'version') or 0)
if stored ~= tonumber(ARGV[1]) then return redis.error_reply('SDRULES') end
local version = stored + 1
if stored == 0 then
    local now = redis.call('TIME')
    version = now[1] * 1000 + math.floor(now[2] / 1000)
end
redis.call('HSET', KEYS[1], 'version', version, 'rules', ARGV[2])
return version
