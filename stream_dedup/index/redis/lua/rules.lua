#!lua
-- Write the rules of a namespace, unless somebody else has since they were read.
-- KEYS  rules
-- ARGV  the version that was read, the rules
-- Returns the new version.
--       SDRULES with the version that is stored, if it is another; nothing is written then.
-- Cost  two commands. The key has no time to live: rules outlive what they act on.
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or 0)
if version ~= tonumber(ARGV[1]) then return redis.error_reply('SDRULES ' .. version) end
redis.call('HSET', KEYS[1], 'version', version + 1, 'rules', ARGV[2])
return version + 1
