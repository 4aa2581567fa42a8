#!lua flags=no-writes,allow-oom
-- Find the commands that the user may not run on a key. Writes nothing.
-- KEYS  any key of the shard
-- ARGV  names of commands
-- Returns the names of those that are refused.
-- Cost  no command; a lookup each.
local refused = {}
local key = KEYS[1]
for i = 1, #ARGV do
  -- Every argument is the key, so that it is checked wherever the command has its keys.
  if not redis.acl_check_cmd(ARGV[i], key, key, key, key) then
    refused[#refused + 1] = ARGV[i]
  end
end
return refused
