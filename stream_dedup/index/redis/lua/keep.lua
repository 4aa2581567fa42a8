#!lua flags=allow-oom
-- Renew the times to live of keys that exist. Runs though the server's memory is full.
-- KEYS  the keys
-- ARGV  time to live in milliseconds
-- Returns how many exist.
-- Cost  one command a key.
local existing = 0
for i = 1, #KEYS do existing = existing + redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
return existing
