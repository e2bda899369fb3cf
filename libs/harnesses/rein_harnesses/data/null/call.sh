# One chat completion over bash's own TCP.
body='{"model":"policy","messages":[{"role":"user","content":"Say something."}]}'
exec 3<> /dev/tcp/127.0.0.1/8000 || exit 1
printf 'POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s' "${#body}" "$body" >&3
read -r _ status _ <&3
while read -r name value <&3 && [ -n "${name%$'\r'}" ]; do
    [ "${name,,}" = content-length: ] && length=${value%$'\r'}
done
LC_ALL=C read -r -N "${length:-0}" answer <&3
echo "$answer"
[ "$status" = 200 ]
