#!lua flags=allow-oom
-- Begin the times to live of keys anew, of those that stand. Runs though the server's memory is full.
-- KEYS  the keys
-- ARGV  time to live in milliseconds
-- Returns how many stand.
-- Cost  one command a key.
local standing = 0
for i = 1, #KEYS do standing = standing + redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
return standing
