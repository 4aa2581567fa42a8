#!lua flags=allow-oom
-- Write what is remembered of patterns, unless somebody else has since it was read. Runs though the
-- server's memory is full: summaries wait for it, and their clusters free it.
-- KEYS  patterns, pattern-names, pattern-seen, pattern-due, pattern-events
-- ARGV  token that was read, token of this write, time to live (ms), stream time looked at or '';
--       then nine lists, each behind its length: id, pattern …; ids that are deleted; name, value …;
--       names that are deleted; last seen, id …; ids; due time, id …; ids; end of lease, event …
-- Returns 1; 0 if somebody else has written: nothing is written then. A call that was carried out and is
--       repeated returns 1.
-- Cost  a command for 2,000 entries of a list, and one for each key.
local call = redis.call
local stored = call('HGET', KEYS[1], 'token') or ''
if stored == ARGV[2] then return 1 end
if stored ~= ARGV[1] then return 0 end

local at = 5
local function each(command, key)
  local first, last = at + 1, at + tonumber(ARGV[at])
  at = last + 1
  for from = first, last, 2000 do  -- Lua passes some thousand arguments at most
    call(command, key, unpack(ARGV, from, math.min(from + 1999, last)))
  end
end
each('HSET', KEYS[1])
each('HDEL', KEYS[1])
each('HSET', KEYS[2])
each('HDEL', KEYS[2])
each('ZADD', KEYS[3])
each('ZREM', KEYS[3])
each('ZADD', KEYS[4])
each('ZREM', KEYS[4])
each('ZADD', KEYS[5])
call('HSET', KEYS[1], 'token', ARGV[2])
if ARGV[4] ~= '' then call('HSET', KEYS[1], 'looked', ARGV[4]) end
for i = 1, #KEYS do call('PEXPIRE', KEYS[i], ARGV[3]) end
return 1
