#!lua flags=allow-oom
-- Release a partition that was read to its end: it no longer holds stream time back.
-- KEYS  meta, heads
-- ARGV  incarnation, settings (see _shard.lua), partition's name
-- Returns nothing.
-- Cost  five commands.
local reply = lost()
if reply then return reply end
local head = call('HGET', KEYS[2], ARGV[3])
if head then
  call('HDEL', KEYS[2], ARGV[3])
  if call('HLEN', KEYS[2]) == 0 then
    write_stream(forward(number('stream'), (unpack_bytes(HEAD, head))))
  end
end
return redis.status_reply('OK')
